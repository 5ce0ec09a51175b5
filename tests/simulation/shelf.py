"""All workflows of the simulation, by name."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache, partial

from tests.simulation.flows import LONG, SHORT, Flow, chain, effect, find, flaky, killer, loop, review, two_effects
from tests.simulation.mixed import mixed

MAKERS: tuple[Callable[[], Flow], ...] = (
    lambda: chain(3),
    lambda: chain(8),
    lambda: chain(20),
    loop,
    lambda: flaky("flaky_short", SHORT),
    lambda: flaky("flaky_long", LONG),
    lambda: effect("pay_retry", "retry"),
    lambda: effect("pay_find", find),
    lambda: effect("pay_none", None),
    lambda: effect("once_find", find, once=True),
    lambda: effect("once_none", None, once=True),
    lambda: effect("once_retry", "retry", once=True),
    two_effects,
    lambda: review("review_soon", timedelta(seconds=1.5)),
    lambda: review("review_late", timedelta(seconds=6)),
    lambda: review("review_open", None),
    killer,
    *(partial(mixed, number) for number in range(16)),
)


@cache
def flows() -> Mapping[str, Flow]:
    """All of them, by name; built once."""
    made = [make() for make in MAKERS]
    return {flow.name: flow for flow in made}
