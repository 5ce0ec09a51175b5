"""The tables that `make bench` prints: what was measured, and which targets are reached."""

from collections.abc import Iterator, Sequence

from benchmarks.cells import WORKLOADS, Cell
from benchmarks.results import NAN, NOT_MEASURED, Results
from benchmarks.targets import Target, targets

Columns = Sequence[tuple[str, str]]  # what stands above, and the figure's name

ONE_RUN: Columns = (("CPU µs", "cpu_us"), ("p50 µs", "p50_us"), ("p99 µs", "p99_us"))
COLUMNS: dict[str, Columns] = {
    "w1": ONE_RUN,
    "w2": (("transitions/s", "rate"), ("CPU µs", "cpu_us"), ("most rows in a table", "kept")),
    "w3": (
        ("CPU µs, first tenth", "first_cpu_us"),
        ("last tenth", "last_cpu_us"),
        ("p50 µs, first tenth", "first_p50_us"),
        ("last tenth", "last_p50_us"),
        ("MB", "bytes"),
    ),
    "w5-start": (
        ("CPU ms to the first commit", "first_commit_cpu_ms"),
        ("import CPU ms", "import_cpu_ms"),
        ("MB", "memory_mb"),
    ),
    "w5-resume": (("first step ms", "first_step_ms"),),
    "w6": ONE_RUN[:2],
    "b76": (*ONE_RUN, ("MB", "bytes")),
}
OF_THE_DATABASE = {"bytes": 1e-6, "kept": 1}  # and their units


def report(results: Results) -> str:
    """Everything, as Markdown."""
    parts = [results.surroundings()]
    for name, workload in WORKLOADS.items():
        cells = [cell for cell in results.cells if cell.workload == name]
        if cells:
            parts.append(f"{name.upper()}: {workload.title}\n\n{table(results, cells, COLUMNS[name])}")
    parts.append(f"Targets\n\n{target_table(list(targets(results)))}")
    return "\n\n".join(parts)


def table(results: Results, cells: Sequence[Cell], columns: Columns) -> str:
    """One line for each cell, in the order in which they were measured."""
    head = ["", *(title for title, _ in columns)]
    return lines(head, [[title_of(cell), *shown(results, cell, columns)] for cell in cells])


def title_of(cell: Cell) -> str:
    """Who did it, and how, where a table holds several."""
    parts = [cell.peer, cell.variant]
    if cell.workload == "w1":
        parts.append(cell.synchronous)
    if cell.workload == "w2":
        parts.append(f"{cell.runs} runs")
    if cell.workload == "w3":
        parts.append(f"{cell.size:,}")
    return " ".join(parts)


def shown(results: Results, cell: Cell, columns: Columns) -> Iterator[str]:
    """The figures of a cell, or why there are none."""
    trouble = results.trouble(cell)
    if trouble is not None:
        yield from (f"none: {trouble}", *("" for _ in columns[1:]))
        return
    for _, key in columns:
        unit = OF_THE_DATABASE.get(key)
        yield number(results.median(cell, key) if unit is None else results.evidence(cell).get(key, NAN) * unit)


def number(figure: float) -> str:
    """With as many digits as mean something."""
    if figure != figure:
        return ""
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.1f}" if abs(figure) >= 10 else f"{figure:.2f}"


def target_table(found: Sequence[Target]) -> str:
    """Each target with its figure, its bound, and whether it is reached."""
    measured = [one for one in found if one.missing != NOT_MEASURED]
    rows = [[one.what, number(one.figure), f"{one.sign} {number(one.bound)}", verdict(one)] for one in measured]
    missed = sum(not one.is_reached for one in measured)
    closing = f"{len(measured) - missed} of {len(measured)} targets reached"
    left_out = len(found) - len(measured)
    return f"{lines(['', 'measured', 'target', 'reached'], rows)}\n\n{closing}" + (
        f"; {left_out} need what was not measured this time." if left_out else "."
    )


def verdict(one: Target) -> str:
    """Reached or not, or why nobody knows."""
    return one.missing or ("yes" if one.is_reached else "NO")


def lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that can be read as it is."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    rule = ["-" * max(3, width) for width in widths]

    def line(cells: Sequence[str]) -> str:
        padded = [cell.ljust(max(3, width)) for cell, width in zip(cells, widths, strict=True)]
        return f"| {' | '.join(padded)} |"

    return "\n".join(line(row) for row in (head, rule, *rows))
