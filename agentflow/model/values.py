"""The plain values that authors and callers hand over: policies, questions, answers, actors, models."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic

from pydantic import BaseModel
from typing_extensions import TypeVar

from agentflow.errors import ConfigurationError

if TYPE_CHECKING:
    from tenacity.stop import stop_base
    from tenacity.wait import wait_base

__all__ = ["Actor", "Answer", "Failure", "Limits", "Model", "Question", "Retry", "Secret", "Tool"]

O_co = TypeVar("O_co", covariant=True)
A_co = TypeVar("A_co", covariant=True)


@dataclass(frozen=True)
class Failure:
    """Why a body did not answer, as it is stored."""

    kind: str
    """The name of the exception's class."""
    message: str
    state: str
    attempts: int = 1
    bases: tuple[str, ...] = field(default=(), repr=False)
    """Full names of the class and its bases, so that `matches` works after a restart."""
    detail: str = field(default="", repr=False)
    """What came with it: a model's raw text, a traceback's last line."""

    def matches(self, kind: type[Exception], /) -> bool:
        """Whether it is of that class, or of one derived from it."""
        return full_name(kind) in self.bases


def full_name(kind: type[Any]) -> str:
    """The name under which a class is remembered in a stored failure."""
    return f"{kind.__module__}.{kind.__qualname__}"


def failure_of(error: BaseException, state: str, *, attempts: int = 1, detail: str = "") -> Failure:
    """The stored form of an exception."""
    bases = tuple(full_name(base) for base in type(error).__mro__ if base is not object)
    text = getattr(error, "text", "")
    return Failure(type(error).__name__, _told(error), state, attempts, bases, detail or str(text)[:20_000])


def _told(error: BaseException) -> str:
    """What an exception says, in reasonable length; its class where it says nothing or cannot even say that."""
    try:
        said = str(error)
    except Exception:  # noqa: BLE001  the exception's class is author code, too
        said = ""
    return said[:5_000] or type(error).__name__


@dataclass(frozen=True)
class Answer(Generic[O_co, A_co]):
    """What a state answered: the outcome, the data that came with it, and the reason."""

    outcome: O_co
    data: A_co
    reason: str = ""
    confidence: float | None = None
    actor: "Actor | None" = None


@dataclass(frozen=True)
class Question:
    """What a person is asked, and what they are shown."""

    text: str
    _: KW_ONLY
    evidence: object = None
    suggest: BaseModel | None = None


@dataclass(frozen=True)
class Actor:
    """Who decided or commanded, and how surely we know."""

    subject: str
    _: KW_ONLY
    source: str = ""
    strength: str = ""
    roles: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Retry:
    """How often a body is tried in all, and how long to wait in between.

    By default `Retryable`, timeouts, connection errors and a provider's 429 and 5xx are tried again; `on` names
    other classes instead. `wait` and `stop` take tenacity's objects; the default wait is exponential with jitter,
    from 1 s to 60 s. Programming errors and `Business` are never tried again unless `on` names them.
    """

    attempts: int = 1
    wait: "wait_base | None" = None
    stop: "stop_base | None" = None
    on: Sequence[type[Exception]] = ()


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one run may use at most. None means the default: 10,000 transitions, 1 MiB of context, no other limit."""

    transitions: int | None = None
    visits: int | None = None
    llm_calls: int | None = None
    tokens: int | None = None
    cost: Decimal | None = None
    wall_time: timedelta | None = None
    context_bytes: int | None = None
    items: int | None = None
    depth: int | None = None

    def raised(self, by: "Limits", /) -> "Limits":
        """These limits, with those of `by` in place of their own wherever it names one."""
        return Limits(
            **{name: mine if (theirs := getattr(by, name)) is None else theirs for name, mine in vars(self).items()}
        )


@dataclass(frozen=True)
class Tool:
    """A function that a model may call, with what it may do."""

    body: Callable[..., Awaitable[object]]
    _: KW_ONLY
    writes: bool = False
    approval: bool = False
    max_calls: int | None = None
    timeout: timedelta | None = None


class Secret:
    """A reference to a secret, such as `env:OPENAI_API_KEY`; the value is never stored, shown or logged."""

    def __init__(self, reference: str, /) -> None:
        self.reference = reference

    def reveal(self) -> str:
        """Look the value up, at the moment of use. Raises `ConfigurationError` if there is none."""
        return _reveal(self.reference)

    def __repr__(self) -> str:
        return f"Secret({self.reference!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other.reference == self.reference

    def __hash__(self) -> int:
        return hash((Secret, self.reference))


def _reveal(reference: str) -> str:
    import os  # noqa: PLC0415  the one place where a value outside the program is read, at the moment of use

    kind, _, name = reference.partition(":")
    if kind != "env" or not name:
        raise ConfigurationError(f"secret reference {reference!r}: write 'env:NAME', the name of a variable")
    value = os.environ.get(name)
    if value is None:
        raise ConfigurationError(f"secret {reference!r}: the environment variable {name} is not set")
    return value


@dataclass(frozen=True)
class Model:
    """A language model; states ask for it by its key in `App(models=...)`.

    Prices are per million tokens, in one currency of your choice; without them a run's cost is unknown.
    """

    name: str
    _: KW_ONLY
    base_url: str | None = None
    api_key: "str | Secret | None" = field(default=None, repr=False)
    timeout: timedelta = timedelta(seconds=60)
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    fallback: "Model | None" = None
    input_price: Decimal | None = None
    output_price: Decimal | None = None


Vars = Mapping[str, object] | BaseModel
