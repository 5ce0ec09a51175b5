"""What bodies and models need from outside: services and clients, entered once per event loop, closed in reverse."""

import asyncio
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeAlias

from agentflow.errors import ConfigurationError
from agentflow.model.definition import Definition
from agentflow.model.values import Model
from agentflow.runners.contexts import Bases

if TYPE_CHECKING:
    from agentflow.llm.client import ModelClient
    from agentflow.llm.pool import ModelClients

ServiceFactory: TypeAlias = Callable[[], AbstractAsyncContextManager[object]]

SYNC_THREADS = 32


def provided_type(factory: ServiceFactory) -> Any:
    """The class that a factory's return annotation promises.

    Raises `ConfigurationError` if it is not annotated as `AsyncGenerator[Shop, None]`, `AsyncIterator[Shop]` or an
    async context manager of a class.
    """
    function: Any = inspect.unwrap(factory)
    try:
        returned = typing.get_type_hints(function).get("return")
    except (NameError, TypeError):
        returned = None
    arguments = typing.get_args(returned)
    found = arguments[0] if arguments else returned
    if not isinstance(found, type):
        name = getattr(factory, "__name__", repr(factory))
        raise ConfigurationError(
            f"service factory {name!r}: annotate what it gives, such as `-> AsyncGenerator[Shop, None]`"
        )
    return found


def match_services(
    definitions: Sequence[Definition], factories: Sequence[ServiceFactory]
) -> Mapping[type[Any], ServiceFactory]:
    """Which factory makes the services of which class. Raises `ConfigurationError` where none or two do."""
    offered = [(provided_type(factory), factory) for factory in factories]
    matched: dict[type[Any], ServiceFactory] = {}
    for definition in definitions:
        wanted = definition.services
        if wanted is None:
            continue
        fitting = [factory for kind, factory in offered if issubclass(kind, wanted)]
        if len(fitting) != 1:
            problem = "has no factory for it" if not fitting else f"has {len(fitting)} factories for it"
            raise ConfigurationError(
                f"workflow {definition.name!r} needs services of class {wanted.__name__}, but App(services=[...]) "
                f"{problem}; pass one async context manager annotated with {wanted.__name__}"
            )
        matched[wanted] = fitting[0]
    return matched


class Resources:
    """The services and clients of one event loop."""

    def __init__(
        self,
        factories: Mapping[type[Any], ServiceFactory],
        models: Mapping[str, Model],
        client: "ModelClient | None" = None,
    ) -> None:
        self._factories = factories
        self._client = client
        self._models = models
        self._stack = AsyncExitStack()
        self._entered: dict[type[Any], Any] = {}
        self._lock = asyncio.Lock()
        self._clients: ModelClients | None = None
        self._threads: ThreadPoolExecutor | None = None
        self.bases = Bases()

    def entered(self, definition: Definition) -> Any:
        """The services of a workflow if they were entered before, else None."""
        return None if definition.services is None else self._entered.get(definition.services)

    async def services(self, definition: Definition) -> Any:
        """The services of a workflow, entered at their first use; None if it has none."""
        wanted = definition.services
        if wanted is None:
            return None
        async with self._lock:
            if wanted not in self._entered:
                self._entered[wanted] = await self._stack.enter_async_context(self._factories[wanted]())
            return self._entered[wanted]

    def model(self, alias: str | None) -> Model:
        """The model of a state: the one of that key, or the default. Raises `ConfigurationError`."""
        return choose_model(self._models, alias)

    def client(self, model: Model) -> "ModelClient":
        """The client that asks the model, one for all states of this loop."""
        if self._client is not None:
            return self._client
        if self._clients is None:
            from agentflow.llm.pool import ModelClients  # noqa: PLC0415  a run without models needs none

            self._clients = ModelClients()
        return self._clients.client(model)

    @property
    def threads(self) -> ThreadPoolExecutor:
        """Where synchronous bodies run."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="agentflow-step")
        return self._threads

    async def close(self) -> None:
        """Leave the services, newest first, and close the clients."""
        try:
            await self._stack.aclose()
        finally:
            self._entered.clear()
            if self._clients is not None:
                await self._clients.close()
            if self._threads is not None:
                self._threads.shutdown(wait=False, cancel_futures=True)


def choose_model(models: Mapping[str, Model], alias: str | None) -> Model:
    """The model of that key; without a key `default`, the only one, or that of the variable OPENAI_MODEL."""
    if alias is not None and alias not in models:
        known = ", ".join(sorted(models)) or "none"
        raise ConfigurationError(f"model {alias!r} is not in App(models={{...}}); known: {known}")
    if alias is not None:
        return models[alias]
    if "default" in models:
        return models["default"]
    if len(models) == 1:
        return next(iter(models.values()))
    if models:
        raise ConfigurationError(
            f"a state names no model and App(models={{...}}) has several ({', '.join(sorted(models))}); "
            "name one with model=, or give one the key 'default'"
        )
    return _model_of_environment()


def _model_of_environment() -> Model:
    import os  # noqa: PLC0415  read at the moment of use, so that a program may set it late

    name = os.environ.get("OPENAI_MODEL")
    if not name:
        raise ConfigurationError(
            "no model is set: pass App(models={'default': Model('...')}) or set the variable OPENAI_MODEL"
        )
    return Model(name)
