"""The statements of the ledger of effects, and of values that are stored once; see `statements`."""

from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Update, and_, case, exists, or_, select, update
from sqlalchemy.sql.base import Executable

from agentflow.store.mapping import names_of
from agentflow.store.prepared import NOW, Statement, given, given_for, insert
from agentflow.store.rows import EffectRow
from agentflow.store.statements import NULL, ONE, word
from agentflow.store.tables import effects, kept_values, runs

EFFECT = [effects.c[name] for name in names_of(EffectRow)]


# --- effects -----------------------------------------------------------------------------------------------------


@Statement
def begin_effect() -> Executable:
    return insert(effects).values({column.name: given(column.name) for column in EFFECT}).returning(*EFFECT)


@Statement
def begin_effect_again() -> Executable:
    """Another try under the same key, after one that did not happen."""
    return (
        update(effects)
        .where(effects.c.key == given("key"), effects.c.status == word("not_happened"))
        .values(
            status=word("claimed"),
            once_per=given("once_per"),
            token=given("token"),
            session=given("session"),
            result=NULL,
            error=NULL,
            claimed_at=given("claimed_at"),
            settled_at=NULL,
        )
        .returning(*EFFECT)
    )


@Statement
def effect_of_key() -> Executable:
    return select(*EFFECT).where(effects.c.key == given("key"))


@Statement
def effect_once_per() -> Executable:
    """The effect that holds a business key."""
    return select(*EFFECT).where(
        effects.c.workflow == given("workflow"),
        effects.c.name == given("name"),
        effects.c.once_per == given("once_per"),
        effects.c.once_per.is_not(None),
        effects.c.status != word("not_happened"),
    )


@Statement
def settle_effect() -> Executable:
    """Where the run is still the caller's, and the effect still in the hands of the claim that began it."""
    return settled_effect(exists(ONE).where(runs.c.id == given("run"), runs.c.token == given("token")))


def settled_effect(is_own: ColumnElement[bool]) -> Update:
    """The effect as it is settled by a caller of whom `is_own` says whether the run is still its own."""
    return (
        update(effects)
        .where(
            effects.c.key == given("key"),
            effects.c.token == given("begun_by"),
            or_(
                effects.c.status.in_([word("claimed"), word("unclear")]),
                effects.c.status == given("status"),
            ),
            is_own,
        )
        .values(
            status=given("status"),
            result=_first_if_settled(effects.c.result, given_for(effects.c.result)),
            error=_first_if_settled(effects.c.error, given_for(effects.c.error)),
            settled_at=_first_if_settled(effects.c.settled_at, NOW),
        )
    )


def _first_if_settled(column: ColumnElement[Any], value: ColumnElement[Any]) -> ColumnElement[Any]:
    """What is done stays done: a repetition changes nothing."""
    is_final = effects.c.status.in_([word("done"), word("not_happened")])
    return case((is_final, column), else_=value)


@Statement
def settle_effect_by_commit() -> Executable:
    """What this claim began is done with the transition that is being committed."""
    return effects_done(effects.c.key == given("key"))


def effects_done(which: ColumnElement[bool]) -> Update:
    """Those that this claim has begun and that are not settled."""
    return (
        update(effects)
        .where(which, effects.c.token == given("token"), effects.c.status == word("claimed"))
        .values(status=word("done"), settled_at=NOW)
    )


@Statement
def resolve_effect() -> Executable:
    """By hand: what is unclear, or was begun by a claim that no longer stands."""
    stands = exists(ONE).where(runs.c.id == effects.c.run, runs.c.token == effects.c.token)
    is_open = or_(effects.c.status == word("unclear"), and_(effects.c.status == word("claimed"), ~stands))
    return (
        update(effects)
        .where(effects.c.key == given("key"), effects.c.run == given("run"), is_open)
        .values(status=given("status"), result=given("result"), settled_at=NOW)
    )


@lru_cache
def list_effects(filters: frozenset[str]) -> Statement:
    """Effects in the order in which they were begun. Filters: run, status."""
    conditions = {"run": effects.c.run == given("run"), "status": effects.c.status == given("status")}
    found = select(*EFFECT).order_by(effects.c.seq).limit(given("limit"))
    return Statement(lambda: found.where(*(conditions[name] for name in sorted(filters))))


# --- values ------------------------------------------------------------------------------------------------------


@Statement
def keep_value() -> Executable:
    return insert(kept_values, unless_there=True).values(digest=given("digest"), content=given("content"))


@Statement
def value_of_digest() -> Executable:
    return select(kept_values.c.content).where(kept_values.c.digest == given("digest"))
