"""A run that stands in a group: open its branches, wait for them, and let them meet.

Opening is one commit with all branches. Each branch is a run of its own, driven by whoever claims it. The run is woken
where the outcome is decided, stops the others then, and where all have settled; joining is an ordinary transition.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from agentflow.engine.events import Answered, BodyFailed, Event, Expired, Facts, GiveUp
from agentflow.engine.head import NO_USAGE, Branch, Head, Usage, failure_from_json
from agentflow.engine.limits import limits_of
from agentflow.engine.merging import Branched, merged
from agentflow.errors import InvalidContext
from agentflow.failures import OverLimit
from agentflow.model.definition import Definition
from agentflow.model.source import digest
from agentflow.model.states import Branching
from agentflow.model.values import Failure
from agentflow.runners.contexts import branch_of, branched
from agentflow.runners.records import head_of, memory_again, standing_of
from agentflow.store.rows import GroupRow, HistoryRow, NewRun, RunRow, Settled

if TYPE_CHECKING:
    from agentflow.runners.perform import Parked, Work

TOLD = 20  # failures of branches that a line of history names
DEPTH = 8  # groups within groups


async def perform_group(work: "Work") -> "Event | Parked":
    """Bring a group one step further."""
    from agentflow.runners.perform import Parked  # noqa: PLC0415  it performs groups among other things

    head = work.head
    row = await work.store.group(head.run, head.state, head.visit)
    if row is None:
        opened = _open(work)
        if opened is None:
            return await _joined(work, None)
        return Parked(None, _expiry(work, opened[0]), *opened)
    if row.is_over and row.generation < head.generation and not _is_success(row):
        await _begin_again(work, row)
        return Parked(None, _expiry(work, row))
    now, expiry = work.store.now(), _expiry(work, row)
    is_late = expiry is not None and expiry <= now
    if not row.is_over and (row.decided or is_late):
        too_late = is_late and not row.decided
        place = (head.run, head.state, head.visit)
        row = await work.store.stop_branches(*place, token=work.token, expired=too_late) or row
    if not row.is_over:
        return Parked(None, None if row.stopping else expiry)
    if row.expired:
        return Expired(now)
    return await _joined(work, row) if _is_success(row) else await _failed(work, row)


def _expiry(work: "Work", row: GroupRow) -> Any:
    expires = work.state.spec.expires
    return None if expires is None else row.opened_at + expires


def _is_success(row: GroupRow) -> bool:
    return row.done >= row.needed


# --- opening -----------------------------------------------------------------------------------------------------


def _open(work: "Work") -> tuple[GroupRow, tuple[NewRun, ...]] | None:
    """The group and its branches; None where there is nothing to do. Raises `OverLimit`, `InvalidContext`."""
    branching = _branching(work)
    _check_depth(work)
    branches = _branches(work, branching)
    if not branches and branching.mode in {"all", "settled"}:
        return None
    needed, fails = _counts(branching, len(branches), work.head.state)
    head = work.head
    group = GroupRow(
        run=head.run,
        state=head.state,
        visit=head.visit,
        total=len(branches),
        needed=needed,
        fails=fails,
        generation=head.generation,
        opened_at=work.store.now(),
    )
    return group, tuple(_new_run(work, branch, branching, place) for branch, place in branches)


def _branching(work: "Work") -> Branching:
    branching = work.state.branching
    assert branching is not None  # a group has one
    return branching


def _check_depth(work: "Work") -> None:
    most = limits_of(work.definition, work.head).depth or DEPTH
    depth = work.head.run.count(":") // 3 + 1
    if depth > most:
        raise OverLimit(f"groups are nested {depth} deep, depth is {most}", limit="depth")


def _counts(branching: Branching, total: int, state: str) -> tuple[int, int]:
    """How many done branches decide, and how many failed ones."""
    match branching.mode:
        case "all":
            return total, 1
        case "any":
            needed = 1
        case "settled":
            return 0, total + 1
        case number:
            needed = number
    if needed > total:
        raise InvalidContext(f"group {state!r}", f"needs {needed} branches, and there are {total}")
    return needed, total - needed + 1


def _branches(work: "Work", branching: Branching) -> list[tuple[Branch, str]]:
    """The branches in their order, each with the state that it begins in."""
    if branching.kind == "each":
        return [(branch, branching.heads[0].name) for branch in _items(work, branching)]
    return [(_branch(work, head.name, position), head.name) for position, head in enumerate(branching.heads)]


def _branch(work: "Work", name: str, position: int, item: str | None = None) -> Branch:
    head = work.head
    return Branch(head.run, head.state, head.visit, name, position, head.revision, item)


def _items(work: "Work", branching: Branching) -> list[Branch]:
    state = work.head.state
    assert branching.items is not None  # an each has them
    items: Sequence[Any] = branching.items(work.copy())
    most = min(branching.max_items or len(items), limits_of(work.definition, work.head).items or len(items))
    if len(items) > most:
        raise OverLimit(f"group {state!r} has {len(items):,} items, at most {most:,} may be", limit="items")
    adapter: TypeAdapter[Any] = TypeAdapter(branching.heads[0].spec.answer)
    found: dict[str, Branch] = {}
    for number, item in enumerate(items):
        key = str(number) if branching.key is None else str(branching.key(item))
        if key in found:
            raise InvalidContext(f"group {state!r}", f"items {found[key].position} and {number} have one key, {key!r}")
        found[key] = _branch(work, key, number, _item_text(adapter, item, f"group {state!r}, item {number}"))
    return list(found.values())


def _item_text(adapter: TypeAdapter[Any], item: Any, where: str) -> str:
    try:
        text = adapter.dump_json(item, warnings="error").decode()
        back = adapter.validate_json(text)
    except (PydanticSerializationError, ValueError) as error:
        raise InvalidContext(
            where, f"{item!r} cannot be stored as the item's type: {str(error).splitlines()[0]}"
        ) from None
    if back != item or type(back) is not type(item):
        raise InvalidContext(where, f"{item!r} would come back as {back!r}")
    return text


def _new_run(work: "Work", branch: Branch, branching: Branching, place: str) -> NewRun:
    parent, now = work.head, work.store.now()
    last = branch.name if branching.kind != "each" else str(branch.position)
    head = Head(
        run=f"{parent.run}:{branch.group}:{branch.visit}:{last}",
        revision=0,
        status="queued",
        state=place,
        visit=1,
        kept=parent.kept,
        started_at=now,
        entered_at=now,
        cause=parent.cause,
        visits={place: 1},
        rescued=True,  # the workflow's own exit is the parent's to take
        limits=parent.limits,
        branch=branch,
    )
    awaits = _awaits(branching, branch.position)
    return NewRun(
        id=head.run,
        workflow=work.definition.name,
        version=work.definition.version,
        shape=work.definition.shape,
        fingerprint=digest(head.run),
        standing=standing_of(head, None if awaits else now),
        history=_first_row(head, branch),
        parent=parent.run,
        root=parent.run.partition(":")[0],
        group_state=branch.group,
        group_visit=branch.visit,
        position=branch.position,
        awaits=awaits,
        origin=None if work.origin is None else f"{work.origin}{head.run.removeprefix(parent.run)}",
        holds_effects=work.holds_effects,
    )


def _awaits(branching: Branching, position: int) -> int:
    if branching.needs is not None:
        return len(branching.needs[branching.heads[position]])
    return int(branching.max_parallel is not None and position >= branching.max_parallel)


def _first_row(head: Head, branch: Branch) -> HistoryRow:
    return HistoryRow(
        revision=0,
        at=head.started_at,
        event="branch",
        source=None,
        outcome=None,
        target=head.state,
        visit=0,
        attempt=0,
        duration_ms=None,
        difference="{}",
        answer=None if branch.item is None else f'{{"item":{branch.item}}}',
    )


# --- meeting -----------------------------------------------------------------------------------------------------


async def _joined(work: "Work", row: GroupRow | None) -> Event:
    """Merge what the branches wrote. Raises `MergeConflict`."""
    head, plan = work.head, work.definition.context
    rows = () if row is None else await work.store.branches(head.run, head.state, head.visit)
    found: Sequence[Branched] = ()
    if row is not None:
        found = await branched(work.store, work.definition, head.run, head.state, head.visit, work.resources.bases)
        found = _that_count(found, rows, row)
    kept, difference = plan.keep(head.kept, merged(plan, head.kept, found))
    facts = Facts(answer=_told(rows))
    return Answered(work.store.now(), None, kept, difference, facts, _usage(rows), joined=True)


def _that_count(found: Sequence[Branched], rows: Sequence[RunRow], row: GroupRow) -> Sequence[Branched]:
    """Where a number of branches decided, those that were done first; a later one may have been done besides."""
    if not 0 < row.needed < row.total:
        return found
    done = sorted((one for one in rows if one.standing.status == "completed"), key=_ended)
    names = {branch.name for one in done[: row.needed] if (branch := branch_of(one)) is not None}
    return [one for one in found if one.name in names]


def _ended(row: RunRow) -> Any:
    return row.ended_at, row.position


async def _failed(work: "Work", row: GroupRow) -> Event:
    """The failure of the first branch that failed, as the group's own."""
    head = work.head
    rows = await work.store.branches(head.run, head.state, head.visit)
    failure = next((found for one in rows if (found := _failure_of(one, head.state)) is not None), None)
    if failure is None:
        names = ", ".join(one.id for one in rows if one.standing.status == "cancelled")
        failure = Failure("Cancelled", f"branches were cancelled: {names}", head.state)
    return BodyFailed(work.store.now(), failure, GiveUp(), Facts(answer=_told(rows)), _usage(rows))


def _failure_of(row: RunRow, group: str) -> Failure | None:
    branch = branch_of(row)
    failure = failure_from_json(row.standing.failure) if row.standing.status == "failed" else None
    if failure is None or branch is None:
        return None
    return replace(
        failure, state=group, message=f"branch {branch.name!r} failed in {failure.state!r}: {failure.message}"
    )


def _told(rows: Sequence[RunRow]) -> dict[str, Any]:
    """What became of the branches, for history."""
    counts: dict[str, int] = {}
    failures: dict[str, str] = {}
    for row in rows:
        counts[row.standing.status] = counts.get(row.standing.status, 0) + 1
        failure = failure_from_json(row.standing.failure) if row.standing.status == "failed" else None
        branch = branch_of(row)
        if failure is not None and branch is not None and len(failures) < TOLD:
            failures[branch.name] = f"{failure.kind}: {failure.message}"
    told: dict[str, Any] = {"branches": counts}
    return told | ({"failures": failures} if failures else {})


def _usage(rows: Sequence[RunRow]) -> Usage:
    """What the branches have used, which counts for the run that opened them."""
    total = NO_USAGE
    for row in rows:
        used = memory_again(row).usage
        total = total if used == NO_USAGE else total.plus(used)
    return total


async def _begin_again(work: "Work", row: GroupRow) -> None:
    """After an operator's retry: the branches that are not done, each from where it stood."""
    head = work.head
    memories: dict[str, str] = {}
    for one in await work.store.branches(head.run, head.state, head.visit):
        if one.standing.status in {"failed", "cancelled"}:
            before = head_of(one, work.definition.context.empty)
            anew = replace(before, status="queued", failure=None, attempt=0, lost=0, generation=before.generation + 1)
            memories[one.id] = standing_of(anew, None).memory
    place = (head.run, head.state, head.visit)
    await work.store.begin_branches_again(*place, memories, token=work.token, generation=head.generation)


# --- settling ----------------------------------------------------------------------------------------------------


def settled_by(definition: Definition, row: RunRow, status: str) -> Settled | None:
    """What the end of a run means to the group whose branch it is."""
    branch = branch_of(row)
    if branch is None:
        return None
    group = definition.states.get(branch.group)  # any code may carry out a cancel, also one without this group
    branching = None if group is None else group.branching
    outcomes: dict[str, Any] = {"completed": "done", "failed": "failed", "cancelled": "stopped"}
    frees: tuple[int, ...] = ()
    if status == "completed" and branching is not None and branching.needs is not None:
        frees = tuple(
            position
            for position, other in enumerate(branching.heads)
            if any(need.name == branch.name for need in branching.needs[other])
        )
    return Settled(
        parent=branch.parent,
        state=branch.group,
        visit=branch.visit,
        outcome=outcomes[status],
        frees=frees,
        slot=branching is not None and branching.max_parallel is not None,
    )
