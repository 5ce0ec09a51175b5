"""Agent workflows as explicit state machines.

Only the names in `__all__` are public here; `effects`, `errors`, `failures`, `merge` and `testing` are modules of their
own. The other classes are what decorators and exits return: authors meet them in completion and in error messages, and
never construct them.
"""

from typing import TYPE_CHECKING

from agentflow.errors import DefinitionError
from agentflow.model.blobs import Blob
from agentflow.model.context import Context
from agentflow.model.migrations import Stored
from agentflow.model.run import Run, SyncRun
from agentflow.model.states import End
from agentflow.model.values import Actor, Answer, Failure, Limits, Model, Question, Retry, Secret, Tool
from agentflow.model.views import Reply, Revision, Snapshot, Wait, Why
from agentflow.model.workflow import Workflow

if TYPE_CHECKING:
    from agentflow.app import App

__all__ = [
    "Actor",
    "Answer",
    "App",
    "Blob",
    "Context",
    "DefinitionError",
    "End",
    "Failure",
    "Limits",
    "Model",
    "Question",
    "Reply",
    "Retry",
    "Revision",
    "Run",
    "Secret",
    "Snapshot",
    "Stored",
    "SyncRun",
    "Tool",
    "Wait",
    "Why",
    "Workflow",
]


def __getattr__(name: str) -> object:
    """Load the App, and with it all that runs, when it is asked for: definitions and their checks do without."""
    if name != "App":
        raise AttributeError(f"module 'agentflow' has no attribute {name!r}")
    from agentflow.app import App  # noqa: PLC0415  as said above

    globals()["App"] = App
    return App
