"""What must hold at every moment: looked at whenever a call has reached the store."""

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from agentflow.store.memory import MemoryStore
from agentflow.store.rows import (
    TERMINAL,
    Commit,
    Committed,
    EffectBegun,
    EffectClaim,
    RunRow,
    WaitRow,
)
from tests.simulation.flows import LEFT_TO_THE_KEY
from tests.simulation.records import Accepted, Claim, Records
from tests.simulation.world import World


@dataclass(slots=True)
class EffectFacts:
    """One key of the ledger, as seen from outside."""

    claim: EffectClaim
    fate: str
    begun: int  # the number of the latest begin
    by: str


@dataclass(slots=True)
class Watch:
    """Sees each call that reached the store, with its answer, and notes the facts and what is wrong with them."""

    store: MemoryStore
    records: Records
    world: World
    lease: timedelta
    leases: dict[str, datetime] = field(default_factory=dict)
    effects: dict[str, EffectFacts] = field(default_factory=dict)
    keys: dict[tuple[Any, ...], set[str]] = field(default_factory=lambda: defaultdict(set))
    begins: list[tuple[int, str, str]] = field(default_factory=list)  # number, worker, key

    def observe(self, who: str, name: str, args: tuple[Any, ...], options: dict[str, Any], answer: Any) -> None:
        """A call reached the store."""
        if self.records.over:
            return
        saw = getattr(self, f"_saw_{name}", None)
        if saw is not None:
            saw(who, answer, *args, **options)

    # --- sessions and claims ----------------------------------------------------------------------------------------

    def _saw_open_session(self, who: str, answer: str, name: str) -> None:
        self.leases[answer] = self.store.now() + self.lease
        self.records.tell(who, "session", self.records.short(answer))

    def _saw_renew_session(self, who: str, answer: bool, session: str) -> None:
        if answer:
            self.leases[session] = self.store.now() + self.lease

    def _saw_close_session(self, who: str, answer: None, session: str) -> None:
        self.records.tell(who, "closes", self.records.short(session))
        if not self._is_live(session):
            return  # it may have been ended before, as that of a dead worker
        self.leases.pop(session, None)
        for claim in [claim for claim in self.records.held.values() if claim.session == session]:
            del self.records.held[claim.run]

    def _saw_claim_runs(self, who: str, answer: list[RunRow], session: str, **_: Any) -> None:
        for row in answer:
            self._claimed(who, session, row)

    def _claimed(self, who: str, session: str, row: RunRow) -> None:
        records, token = self.records, row.token or ""
        before = records.held.get(row.id)
        number = records.tell(
            who, "claims", row.id, f"r{row.revision} {row.standing.state} {row.standing.status}", records.short(token),
            f"claims {row.claims_without_progress}",
        )  # fmt: skip
        if before is not None and self._is_live(before.session):
            records.breaks(row.id, "a claim is exclusive", f"{who} got it while {before.worker}'s lease stands")
        if row.standing.status in TERMINAL:
            records.breaks(row.id, "a run that has ended is not claimed", row.standing.status)
        records.counts["takeover"] += before is not None
        claim = Claim(number, who, session, token, row.id, row.revision, records.lives[row.id], before is not None)
        records.held[row.id] = claim
        records.claims.append(claim)

    def _is_live(self, session: str) -> bool:
        until = self.leases.get(session)
        return until is not None and until > self.store.now()

    def _saw_release_run(self, who: str, answer: None, run: str, token: str) -> None:
        self.records.tell(who, "releases", run, self.records.short(token))
        held = self.records.held.get(run)
        if held is not None and held.token == token and self._is_live(held.session):
            del self.records.held[run]  # else its session may have been ended before
        self._check_waker(run)

    # --- commits ------------------------------------------------------------------------------------------------

    def _saw_commit(self, who: str, answer: Any, commit: Commit) -> None:
        records, history = self.records, commit.history
        place = f"{history.source} {history.event} -> {history.target}" if history is not None else "stays"
        standing = commit.standing
        number = records.tell(
            who, "commits", commit.run, f"r{commit.revision}", place, standing.status, records.short(commit.token),
            "release" if commit.release else "", type(answer).__name__,
        )  # fmt: skip
        records.counts[type(answer).__name__] += 1
        if not isinstance(answer, Committed):
            return
        held = records.held.get(commit.run)
        if held is None or held.token != commit.token:
            owner = "nobody" if held is None else held.worker
            records.breaks(commit.run, "a write is fenced by its token", f"{who} committed, the run is {owner}'s")
        records.accepted.append(Accepted(number, who, commit))
        if commit.release and held is not None:
            del records.held[commit.run]
        self._check_waker(commit.run)

    def _check_waker(self, run: str) -> None:
        """A run that goes on has somebody or something that wakes it."""
        row = self.row(run)
        if row is None or row.standing.status in TERMINAL or row.session is not None:
            return
        here = (row.standing.state, row.standing.visit)
        waits: list[WaitRow] = self.ask(self.store.waits(run=row.id, status=None))
        said = {wait.status for wait in waits if (wait.state, wait.visit) == here}
        if row.standing.due_at is None and "open" not in said:
            self.records.breaks(run, "a run that goes on has a waker", row.standing)
        elif said & {"decided", "expired"} and (row.standing.due_at is None or row.standing.due_at > self.store.now()):
            self.records.breaks(run, "a run whose wait is settled is due at once", row.standing)

    def row(self, run: str) -> RunRow | None:
        """The run as it is stored."""
        found: RunRow | None = self.ask(self.store.run(run))
        return found

    @staticmethod
    def ask(question: Any) -> Any:
        """The answer of the store, without a loop."""
        try:
            question.send(None)
        except StopIteration as answer:
            return answer.value
        raise AssertionError("the store suspended")

    # --- commands and waits ----------------------------------------------------------------------------------------

    def _saw_request(self, who: str, answer: bool, command: Any, *, word: str | None, wake: bool) -> None:
        if answer:
            self.records.counts[f"{command.command} requested"] += 1
            number = self.records.tell(who, "requests", command.run, command.command, command.status, command.why)
            self.records.commands.append((number, command))
        self._check_waker(command.run)

    def _saw_reopen(self, who: str, answer: bool, command: Any, *, standing: Any, **_: Any) -> None:
        if answer:
            self.records.counts[f"{command.command} at rest"] += 1
            number = self.records.tell(who, "reopens", command.run, command.command, standing.status)
            self.records.commands.append((number, command))
            if command.command == "retry":
                self.records.lives[command.run] += 1
        self._check_waker(command.run)

    def _saw_decide(self, who: str, answer: Any, decision: Any) -> None:
        self.records.tell(who, "decides", decision.wait, decision.outcome, answer.status)
        self.records.counts[f"decision {answer.status}"] += 1
        if answer.status == "applied":
            self.records.decided.append(decision)
            if answer.wait.due_at is not None and self.store.now() >= answer.wait.due_at:
                self.records.breaks(answer.wait.run, "a wait that is due takes no decision", decision.wait)
        if answer.wait is not None:
            self._check_waker(answer.wait.run)

    def _saw_expire(self, who: str, answer: WaitRow | None, wait: str) -> None:
        self.records.tell(who, "expires", wait, "-" if answer is None else answer.status)
        if answer is not None and answer.status == "expired":
            self.records.counts["expired"] += 1
            if answer.due_at is None or self.store.now() < answer.due_at:
                self.records.breaks(answer.run, "an expiry never comes early", wait)
            self._check_waker(answer.run)

    # --- effects ----------------------------------------------------------------------------------------------------

    def _saw_begin_effect(self, who: str, answer: Any, claim: EffectClaim) -> None:
        found = "lease lost" if answer is None else f"{type(answer).__name__} {answer.row.status}"
        number = self.records.tell(who, "begins effect", claim.key, self.records.short(claim.token), found)
        self.records.counts[f"effect {found}"] += 1
        if not isinstance(answer, EffectBegun):
            return
        self.begins.append((number, who, claim.key))
        self._check_fence(who, claim.run, claim.token, "begin an effect")
        before = self.effects.get(claim.key)
        if before is not None and before.fate != "not_happened":
            self.records.breaks(claim.run, "an effect is not begun again", claim.key, f"it was {before.fate}")
        rivals = [facts for key, facts in self.effects.items() if key != claim.key and _is_same_business(facts, claim)]
        if any(facts.fate != "not_happened" for facts in rivals):
            self.records.breaks(claim.run, "once_per is unique", claim.once_per, [facts.fate for facts in rivals])
        self.effects[claim.key] = EffectFacts(claim, "claimed", number, who)
        self.keys[claim.run, claim.state, claim.visit, claim.name, claim.item].add(claim.key)

    def _check_fence(self, who: str, run: str, token: str, what: str) -> None:
        held = self.records.held.get(run)
        if held is None or held.token != token:
            owner = "nobody" if held is None else held.worker
            self.records.breaks(run, "a write is fenced by its token", f"{who} could {what}, the run is {owner}'s")

    def _saw_settle_effect(self, who: str, answer: bool, run: str, token: str, key: str, status: str, **_: Any) -> None:
        self.records.tell(who, "settles effect", key, status, answer)
        facts = self.effects.get(key)
        if not answer or facts is None:
            return
        self._check_fence(who, run, token, "settle an effect")
        if facts.fate == "done" and status != "done":
            self.records.breaks(run, "what is recorded as done stays so", key, status)
        if status == "done" and key not in self.world.receipts:
            self.records.breaks(run, "only what happened is recorded as done", key)
        if status == "not_happened":
            self._check_denied(run, key, facts)
        facts.fate = status

    def _check_denied(self, run: str, key: str, facts: EffectFacts) -> None:
        """Whether somebody may say that it did not happen: the world did, or the author leaves it to the key."""
        if not self.is_left_to_the_key(key) and not any(number > facts.begun for number in self.world.denied[key]):
            self.records.breaks(run, "nobody guesses that an effect did not happen", key)

    def is_left_to_the_key(self, key: str) -> bool:
        """Whether the author said `unclear="retry"`: the other side notices a repetition by its key."""
        run, state, *_ = key.split(":")
        row = self.row(run)
        return row is not None and (row.workflow, state) in LEFT_TO_THE_KEY


def _is_same_business(facts: EffectFacts, claim: EffectClaim) -> bool:
    other = facts.claim
    return claim.once_per is not None and (other.workflow, other.name, other.once_per) == (
        claim.workflow,
        claim.name,
        claim.once_per,
    )
