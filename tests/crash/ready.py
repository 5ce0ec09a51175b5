"""What the process from which children are forked has done before: imported everything, and lived one life.

After that life nothing is left to be imported or compiled, and no thread is left, so that a fork is safe.
"""

import gc
import threading
from importlib.util import find_spec

import agentflow.store.memory
import tests.crash.contention
import tests.crash.lives
import tests.crash.long_steps
import tests.crash.races
from agentflow.store import statements as common
from agentflow.store.prepared import Statement
from tests.crash.forks import WITHIN
from tests.crash.stores import kind_of


def practise() -> None:
    """Live one whole life, and prepare what lives on the other database will need."""
    with kind_of("sqlite") as kind:
        tests.crash.lives.finish(kind.place("practice"))
    if find_spec("asyncpg") is not None:
        from agentflow.store import ledger_statements, postgres_statements  # noqa: PLC0415  as above

        for statements in (common, ledger_statements, postgres_statements):
            for statement in vars(statements).values():
                if isinstance(statement, Statement):
                    _ = statement.postgres
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join(WITHIN)
    assert threading.active_count() == 1
    gc.freeze()  # a collection in a child would touch, and so copy, all that the parent has made


practise()
__all__ = ["agentflow", "tests"]
