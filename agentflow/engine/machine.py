"""A definition, compiled into a `transitions` machine: the only place that moves a run's state.

One machine serves all runs of a definition. A run is never registered with it: each event makes a light `Token` that
carries the state in and out, and the trace of what was evaluated on the way.
"""

import inspect
from collections.abc import Callable
from typing import Any

from transitions import Event, EventData, Machine
from transitions import Transition as MachineTransition

from agentflow.errors import GuardFailed
from agentflow.model.context import Context
from agentflow.model.definition import Definition, guard_name
from agentflow.model.states import Transition
from agentflow.model.values import Failure
from agentflow.record import record


class Token:
    """What one event carries through the machine."""

    __slots__ = ("copy_of_context", "failure", "guards", "rescued", "row", "state", "unchanged")

    def __init__(
        self,
        state: str,
        copy_of_context: Callable[[], Context],
        failure: Failure | None,
        rescued: bool,
        unchanged: Callable[[Context], bool] | None,
    ) -> None:
        self.state = state
        self.copy_of_context = copy_of_context
        self.failure = failure
        self.rescued = rescued
        self.unchanged = unchanged
        self.guards: list[tuple[str, bool]] = []
        self.row: Transition[Any] | None = None


@record
class Fired:
    """A transition that was taken."""

    row: Transition[Any]
    target: str
    guards: tuple[tuple[str, bool], ...]


class LeanTransition(MachineTransition):
    """A transition without callbacks before and after: only its conditions and its target count here."""

    def execute(self, event_data: EventData) -> bool:
        """Go to the target if all conditions hold."""
        condition: Any
        for condition in self.conditions:
            if not condition.func(event_data):
                return False
        token: Any = event_data.model
        token.state = self.dest  # of a plain machine, a state is its name
        return True


class LeanEvent(Event):
    """An event that is never queued and never logged: half the price of a trigger, for the same choice."""

    def trigger(self, model: Any, *args: Any, **kwargs: Any) -> bool:
        """Take the first transition, in table order, whose conditions hold."""
        data = EventData(None, self, self.machine, model, args=args, kwargs=kwargs)
        for transition in self.transitions[model.state]:  # noqa: SIM110  a generator would cost as much as the choice
            if transition.execute(data):
                return True
        return False


class LeanMachine(Machine):
    """A machine of these."""

    event_cls = LeanEvent
    transition_cls = LeanTransition


class DefinitionMachine:
    """The machine of one definition."""

    def __init__(self, definition: Definition) -> None:
        self._machine = LeanMachine(
            model=None,
            states=[*definition.states, *definition.ends],
            initial=definition.start,
            auto_transitions=False,
            send_event=True,
            queued=False,
            ignore_invalid_triggers=False,
        )
        self._known: set[tuple[str, str]] = set()
        for row in definition.rows:
            if row.exit.place is not None:
                self._add(row, row.exit.place.name)
        for row in definition.rescues:  # after each state's own rows, so those are tried first
            for state in definition.states:
                self._add(row, state)

    def _add(self, row: Transition[Any], state: str) -> None:
        for event in event_names(row):
            self._machine.add_transition(event, state, row.target.name, conditions=[_condition(row)])
            self._known.add((event, state))

    def fire(self, event: str, token: Token) -> Fired | None:
        """Take the first row whose guards are true; None if there is none. Raises `GuardFailed`."""
        if (event, token.state) not in self._known:
            return None
        moved: bool = self._machine.events[event].trigger(token)
        if not moved or token.row is None:
            return None
        return Fired(token.row, token.state, tuple(token.guards))


def event_names(row: Transition[Any]) -> list[str]:
    """The machine's names of the events that a row answers."""
    if row.exit.event == "on":
        return [f"on:{outcome.name}" for outcome in row.exit.outcomes]
    return [row.exit.event]


def _condition(row: Transition[Any]) -> Callable[[EventData], bool]:
    exit = row.exit

    def holds(event: EventData) -> bool:
        token: Any = event.model
        if exit.event == "failed" and not _takes(row, token):
            return False
        for guard in exit.guards:
            if not _evaluate(guard, token):
                return False
        token.row = row
        return True

    return holds


def _takes(row: Transition[Any], token: Token) -> bool:
    if row.exit.place is None and token.rescued:
        return False  # the workflow's own exit is taken at most once in a run
    failure = token.failure
    return not row.exit.failures or (failure is not None and any(failure.matches(kind) for kind in row.exit.failures))


def _evaluate(guard: Callable[[Any], bool], token: Token) -> bool:
    name = guard_name(guard)
    context = token.copy_of_context()
    try:
        answer: Any = guard(context)
        result = bool(answer)
    except Exception as error:
        raise GuardFailed(f"guard {name!r} raised {type(error).__name__}: {error}") from error
    if inspect.isawaitable(answer):  # true whatever it would have said
        if inspect.iscoroutine(answer):
            answer.close()
        raise GuardFailed(f"guard {name!r} returned something to await; a guard answers True or False at once")
    if token.unchanged is not None and not token.unchanged(context):
        raise GuardFailed(f"guard {name!r} changed the context; a guard only looks")
    token.guards.append((name, result))
    return result


def machine_of(definition: Definition) -> DefinitionMachine:
    """The machine of a definition, compiled once."""
    machine = definition.engine_cache.get("machine")
    if machine is None:
        machine = definition.engine_cache["machine"] = DefinitionMachine(definition)
    return machine
