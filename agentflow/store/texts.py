"""Texts that every store can keep in a column of their own: PostgreSQL takes no NUL, and no database half of a character.

What is stored as JSON is not concerned: there both have an escape. What people read is escaped likewise, so that a
question or a reason never fails for a character in it; a name by which something is found again is refused instead.
"""

from agentflow.errors import InvalidInput

__all__ = ["checked_name", "escaped", "is_storable"]


def is_storable(text: str) -> bool:
    """Whether every store keeps the text as it is; nothing can have been stored under another."""
    if "\x00" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def escaped(text: str) -> str:
    """The text with NUL and halves of characters written as `\\x00` and `\\ud800`."""
    if is_storable(text):
        return text
    return text.replace("\x00", "\\x00").encode(errors="backslashreplace").decode()


def checked_name(text: str, what: str) -> str:
    """The text itself, if it can be a name. Raises `InvalidInput`."""
    if not is_storable(text):
        raise InvalidInput(f"{what} {text!r} holds a NUL or half of a character; leave it out")
    return text
