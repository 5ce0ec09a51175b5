"""Exit codes, and what every error says on the command line."""

from enum import IntEnum
from typing import Any

from agentflow.errors import (
    AgentflowError,
    ConfigurationError,
    Conflict,
    DefinitionError,
    IncompatibleDefinition,
    InvalidInput,
    NewerSchema,
    NotAllowed,
    NotFound,
    NotOurDatabase,
    OlderSchema,
    RequestError,
    RunFailed,
    StoreError,
)


class ExitCode(IntEnum):
    """What a command's exit code means."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    DEFINITION = 3
    NOT_FOUND = 4
    CONFLICT = 5
    RUN_FAILED = 6
    WAITS = 7
    TIMED_OUT = 8
    NO_DATABASE = 9
    NOT_ALLOWED = 10
    DIFFERS = 11
    INTERRUPTED = 130


CODES: tuple[tuple[type[BaseException], ExitCode, str], ...] = (
    (DefinitionError, ExitCode.DEFINITION, "definition"),
    (IncompatibleDefinition, ExitCode.DEFINITION, "incompatible"),
    (NotFound, ExitCode.NOT_FOUND, "not_found"),
    (Conflict, ExitCode.CONFLICT, "conflict"),
    (NotAllowed, ExitCode.NOT_ALLOWED, "not_allowed"),
    (InvalidInput, ExitCode.USAGE, "invalid_input"),
    (RequestError, ExitCode.USAGE, "refused"),
    (RunFailed, ExitCode.RUN_FAILED, "run_failed"),
    (NotOurDatabase, ExitCode.NO_DATABASE, "not_our_database"),
    (NewerSchema, ExitCode.NO_DATABASE, "newer_schema"),
    (OlderSchema, ExitCode.NO_DATABASE, "older_schema"),
    (StoreError, ExitCode.NO_DATABASE, "store"),
    (ConfigurationError, ExitCode.USAGE, "configuration"),
    (AgentflowError, ExitCode.INTERNAL, "error"),
    (TimeoutError, ExitCode.TIMED_OUT, "timed_out"),
)


def code_of(error: BaseException) -> tuple[ExitCode, str] | None:
    """The exit code and the word for an error; None for one that nobody expected."""
    return next(((code, word) for kind, code, word in CODES if isinstance(error, kind)), None)


def error_object(error: BaseException, word: str) -> dict[str, Any]:
    """An error as `--json` shows it."""
    found: dict[str, Any] = {"code": word, "message": str(error) or type(error).__name__}
    if isinstance(error, DefinitionError):
        found["problems"] = list(error.problems)
    return {"v": 1, "error": found}
