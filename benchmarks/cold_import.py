"""Import agentflow, build the refund workflow, and print what that took: python -m benchmarks.cold_import

A process of its own that has loaded nothing else before, since what both need would otherwise not be counted.
"""

import time

before = time.process_time()

import definitions.refund  # noqa: E402

took = time.process_time() - before

with open("/proc/self/status", encoding="ascii") as status:
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
assert definitions.refund.refund.name == "refund"
print(f'{{"cpu_ms": {took * 1e3}, "peak_mb": {peak / 1024}}}')
