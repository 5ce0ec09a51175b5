"""What asyncpg raises, in our words: which database, what happened, and how to mend it."""

from collections.abc import Mapping

import asyncpg

from agentflow.errors import InvalidInput, StoreBusy, StoreError, StoreUnavailable

AGAIN = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError, asyncpg.UniqueViolationError)
GONE = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a connection that was cut off while it was being used
    OSError,
    TimeoutError,
)
UNFIT = (asyncpg.DataError, asyncpg.CharacterNotInRepertoireError, asyncpg.UntranslatableCharacterError)
BUSY = (asyncpg.LockNotAvailableError, asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
MENDED: Mapping[type[Exception], str] = {
    asyncpg.InvalidCatalogNameError: "create it (createdb), or name another",
    asyncpg.InvalidAuthorizationSpecificationError: "check user and password",
    asyncpg.InvalidPasswordError: "check user and password",
    asyncpg.DiskFullError: "make room on the server's disk",
    asyncpg.OutOfMemoryError: "give the server more memory",
    asyncpg.ReadOnlySQLTransactionError: "it may be a standby: name the primary",
}
OURS = (asyncpg.PostgresError, asyncpg.InternalClientError, *GONE, OverflowError, UnicodeEncodeError)


def in_our_words(shown: str, error: BaseException) -> StoreError | InvalidInput:
    """The error of the driver as one of ours; `shown` names the database."""
    if isinstance(error, UNFIT) and "0x00" in str(error):
        return InvalidInput(f"{shown} cannot store a text with a NUL character; take it out")
    if isinstance(error, (*UNFIT, OverflowError, UnicodeEncodeError)):
        return InvalidInput(f"a value cannot be stored: {error}")
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return StoreUnavailable(f"{shown}: this user may not do what is needed, GRANT it: {error}")
    for kind, way in MENDED.items():
        if isinstance(error, kind):
            return StoreUnavailable(f"{shown}: {error}; {way}")
    if isinstance(error, BUSY):
        return StoreBusy(f"{shown}: somebody holds a lock for too long and nothing was written, try again: {error}")
    if isinstance(error, GONE):
        return StoreUnavailable(f"{shown} cannot be reached or went away: {str(error) or type(error).__name__}")
    return StoreError(f"{shown} refused a statement and nothing was written: {error}")
