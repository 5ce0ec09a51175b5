"""What the verbs should do, as a small table of plain values that knows nothing of the engine."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

WAIT = timedelta(hours=1)  # until a question expires
PAUSE = timedelta(seconds=60)  # between two attempts
ATTEMPTS = 2
VISITS = 1  # of `work`, until more are allowed


@dataclass
class Plan:
    """What the world makes of a run: one word for each attempt at `work`, one for each call of `pay`."""

    work: tuple[str, ...] = ()  # ok, again, broken
    pay: tuple[str, ...] = ()  # ok, doubt, refused

    def said(self, words: tuple[str, ...], number: int) -> str:
        return words[number] if number < len(words) else "ok"


@dataclass
class Line:
    """A line of history: where the run went, and with which visits behind it."""

    target: str
    visits: dict[str, int]


@dataclass
class Expected:
    """One run, as it should be."""

    id: str
    plan: Plan
    at: datetime
    status: str = "queued"
    state: str = "work"
    end: str | None = None
    blocked: bool = False
    paused: bool = False
    visits: dict[str, int] = field(default_factory=lambda: {"work": 1})
    tried: int = 0  # attempts that failed within the visit
    retry_at: datetime | None = None
    worked: int = 0  # attempts at `work` in all
    paid: int = 0  # calls of `pay` in all
    doubt: bool = False  # whether the call of this visit is in doubt
    due: datetime | None = None  # of the open question
    answers: dict[str, str] = field(default_factory=dict[str, str])  # how each question was closed
    picked: str | None = None  # an answer that the run has not acted upon yet
    lines: list[Line] = field(default_factory=list[Line])
    requests: set[str] = field(default_factory=set[str])
    acted: set[int] = field(default_factory=set[int])  # visits of `act` whose call is recorded
    origin: "Expected | None" = None
    raised: int | None = None  # visits that somebody allowed this run

    def __post_init__(self) -> None:
        if not self.lines:
            self.lines.append(Line(self.state, dict(self.visits)))

    @property
    def revision(self) -> int:
        return len(self.lines) - 1

    @property
    def over(self) -> bool:
        return self.status in {"completed", "failed", "cancelled"}

    @property
    def question(self) -> str | None:
        """The id of the open question."""
        return f"{self.id}.ask.{self.visits['ask']}" if self.due is not None else None

    # --- how it moves ------------------------------------------------------------------------------------------

    def drive(self, now: datetime) -> None:
        """Go on until the run rests."""
        while not (self.over or self.paused or self.blocked) and self._step(now):
            pass

    def _step(self, now: datetime) -> bool:
        most = VISITS if self.state == "work" and self.raised is None else self.raised
        if most is not None and self.visits[self.state] > most:
            self.blocked, self.status = True, "queued"
            return False
        match self.state:
            case "work":
                return self._work(now)
            case "ask":
                return self._ask(now)
            case _:
                return self._act()

    def _work(self, now: datetime) -> bool:
        if self.retry_at is not None and self.retry_at > now:
            self.status = "queued"
            return False
        word = self.plan.said(self.plan.work, self.worked)
        self.worked += 1
        self.retry_at = None
        if word == "ok":
            return self._go("ask")
        self.tried += 1
        if word == "again" and self.tried < ATTEMPTS:
            self.retry_at, self.status = now + PAUSE, "queued"
        else:
            self.status = "failed"
        return False

    def _ask(self, now: datetime) -> bool:
        question = f"{self.id}.ask.{self.visits['ask']}"
        if self.picked is not None:
            picked, self.picked = self.picked, None
            return self._go("act" if picked == "YES" else "work")
        if self.due is None:
            self.due, self.status = now + WAIT, "waiting"
            return False
        if self.due > now:
            self.status = "waiting"
            return False
        self.answers[question], self.due = "expired", None
        return self._go("stale", ends="completed")

    def _act(self) -> bool:
        if self.origin is not None and self.origin.recorded(self.visits["act"]):
            return self._go("done", ends="completed")
        if self.doubt:
            self.status = "failed"
            return False
        word = self.plan.said(self.plan.pay, self.paid)
        self.paid += 1
        if word == "ok":
            self.acted.add(self.visits["act"])
            return self._go("done", ends="completed")
        self.doubt, self.status = word == "doubt", "failed"
        return False

    def recorded(self, visit: int) -> bool:
        """Whether the call of that visit was made, here or where this run was forked from."""
        return visit in self.acted or (self.origin is not None and self.origin.recorded(visit))

    def _go(self, target: str, *, ends: str | None = None) -> bool:
        if ends is None:
            self.visits[target] = self.visits.get(target, 0) + 1
        else:
            self.end, self.status = target, ends
        self.state, self.tried, self.doubt = target, 0, False
        self.lines.append(Line(target, dict(self.visits)))
        return ends is None

    # --- what is commanded -------------------------------------------------------------------------------------

    def decide(self, question: str, pick: str, now: datetime) -> str:
        """The answer to an answer."""
        if question in self.answers:
            return "already" if self.answers[question] == pick else "refused"
        if self.due is None or self.due <= now:
            return "refused"
        self.answers[question], self.picked, self.due = pick, pick, None
        self.drive(now)
        return "applied"

    def pause(self) -> str:
        if self.paused:
            return "already"
        if self.over:
            return "refused"
        self.paused = True
        return "applied"

    def resume(self, now: datetime, visits: int | None) -> str:
        if self.over or (visits is not None and self.visits[self.state] > visits):
            return "refused"
        if not self.paused and not self.blocked and visits is None:
            return "already"
        self.raised = self.raised if visits is None else visits
        self.paused = self.blocked = False
        self.drive(now)
        return "applied"

    def cancel(self) -> str:
        if self.over:
            return "already" if self.status == "cancelled" else "refused"
        if self.due is not None:
            self.answers[self.question or ""] = "closed"
        self.status, self.due, self.paused, self.blocked = "cancelled", None, False, False
        return "applied"

    def retry(self, now: datetime) -> str:
        if self.status != "failed":
            return "refused"
        self.status, self.tried = "queued", 0
        self.drive(now)
        return "applied"

    def fork(self, revision: int, name: str, now: datetime) -> "Expected | None":
        """A live fork of a revision; None where there is nothing to run."""
        line = self.lines[revision]
        if line.target not in {"work", "ask", "act"}:
            return None
        return Expected(
            name,
            self.plan,
            now,
            state=line.target,
            visits=dict(line.visits),
            lines=[Line(line.target, line.visits)],
            origin=self,
        )
