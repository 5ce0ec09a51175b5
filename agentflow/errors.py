"""Every error that agentflow raises on its own account, in one tree.

    AgentflowError
    ├── DefinitionError            the workflow contradicts itself; nothing was run
    ├── RequestError               the caller asked for something that cannot be done; nothing was changed
    │   ├── NotFound               no such workflow, run, revision or wait
    │   ├── Conflict               it exists already, with other content, or was decided by someone else
    │   ├── InvalidInput           a context, an answer or an option that does not fit
    │   └── NotAllowed             an actor without the role that it takes
    ├── RunError                   a run cannot go on as it is; its state is intact
    │   ├── RunFailed              `result()` of a run that ended failed or cancelled
    │   ├── IncompatibleDefinition the code at hand does not accept the stored run
    │   ├── InvalidContext         a body left the context in a shape that cannot be stored
    │   ├── GuardFailed            a guard raised
    │   ├── StoreFailed            a `.store` function raised
    │   └── EffectNameReused       one effect name twice in a visit
    ├── ConfigurationError         the program is set up wrongly: no API key, no such model or service
    └── StoreError                 the database cannot be used
        ├── NotOurDatabase         the file or server holds something else
        ├── NewerSchema            a newer agentflow wrote it
        ├── OlderSchema            an agentflow before the first release wrote it
        ├── StoreBusy              another process kept the write lock too long
        ├── StoreUnavailable       it is full, read-only, or gone
        └── SessionOver            the lease of a worker session ran out

    LeaseLost (BaseException)      another worker owns the run now; author code must not catch it
    EffectHeld (BaseException)     a fork came to an effect that its origin did not record; likewise

The classes for `.failed(...)`, which are what a body raises, live in `agentflow.failures`.
"""

from collections.abc import Sequence
from typing import Any

__all__ = [
    "AgentflowError",
    "ConfigurationError",
    "Conflict",
    "DefinitionError",
    "EffectHeld",
    "EffectNameReused",
    "GuardFailed",
    "IncompatibleDefinition",
    "InvalidContext",
    "InvalidInput",
    "LeaseLost",
    "NewerSchema",
    "NotAllowed",
    "NotFound",
    "NotOurDatabase",
    "OlderSchema",
    "RequestError",
    "RunError",
    "RunFailed",
    "SessionOver",
    "StoreBusy",
    "StoreError",
    "StoreFailed",
    "StoreUnavailable",
]


class AgentflowError(Exception):
    """The base of all errors below."""


class DefinitionError(AgentflowError):
    """The workflow has problems, all of them listed; nothing was run."""

    def __init__(self, workflow: str, problems: Sequence[str]) -> None:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f"workflow {workflow!r} has {count}:\n" + "\n".join(f"  - {problem}" for problem in problems))
        self.workflow = workflow
        self.problems: Sequence[str] = tuple(problems)


class RequestError(AgentflowError):
    """The caller asked for something that cannot be done; nothing was changed."""


class NotFound(RequestError):
    """There is no such workflow, run, revision or wait."""


class Conflict(RequestError):
    """It exists already with other content, or somebody else was first."""


class InvalidInput(RequestError):
    """A context, an answer or an option does not fit; the message names each field."""


class NotAllowed(RequestError):
    """The actor lacks the role that the decision takes."""


class RunError(AgentflowError):
    """A run cannot go on as it is; its state is intact."""


class RunFailed(RunError):
    """The run ended failed or cancelled; `snapshot` shows where and why."""

    def __init__(self, message: str, snapshot: Any = None) -> None:
        super().__init__(message)
        self.snapshot = snapshot


class IncompatibleDefinition(RunError):
    """The workflow at hand does not accept the run as it is stored."""


class InvalidContext(RunError):
    """A body left the context in a shape that cannot be stored; nothing of it was."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


class GuardFailed(RunError):
    """A guard raised; the run keeps its state and its answer, a retry evaluates again."""


class StoreFailed(RunError):
    """A `.store` function raised; the run keeps its state and its answer, a retry stores again."""


class EffectNameReused(RunError):
    """A body used one effect name twice in a visit; pass `item=` to tell the calls apart."""


class ConfigurationError(AgentflowError):
    """The program is set up wrongly: no API key, no such model, no such service."""


class StoreError(AgentflowError):
    """The database cannot be used."""


class NotOurDatabase(StoreError):
    """The file or server holds something that agentflow did not write."""


class NewerSchema(StoreError):
    """A newer agentflow wrote this database."""


class OlderSchema(StoreError):
    """An agentflow wrote this database whose tables this one does not read any more."""


class StoreBusy(StoreError):
    """Another process kept the write lock too long; nothing was written."""


class StoreUnavailable(StoreError):
    """The database is full, read-only or gone; nothing was written."""


class SessionOver(StoreError):
    """The lease of a worker session ran out, so it is given no more runs; a runner begins another session."""

    def __init__(self, session: str) -> None:
        super().__init__(f"the lease of session {session} is over; begin another session")
        self.session = session


class LeaseLost(BaseException):
    """Another worker owns the run now; what this body does is discarded.

    A `BaseException`, so that author code that catches `Exception` does not carry on by mistake.
    """


class EffectHeld(BaseException):
    """A fork whose effects are held came to one that its origin did not record; the run is blocked before it acts.

    A `BaseException`, as `LeaseLost`.
    """
