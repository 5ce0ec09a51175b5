"""Ask a state's model: render its prompt, keep every reply in the ledger, read an answer out of it.

A reply is a row of the run's ledger before anybody judges it (key `run:state:visit:llm:turn`), so neither a crash nor
a re-ask nor a retry pays for it twice. An operator's retry of a failed answer asks anew, under its own key.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pydantic import BaseModel

from agentflow.engine.head import NO_USAGE, Usage
from agentflow.errors import InvalidContext, LeaseLost
from agentflow.llm.choice import ModelAnswer, ModelQuestion, ask
from agentflow.llm.client import ModelReply
from agentflow.llm.prompts import choices_of, render
from agentflow.model.context import Context
from agentflow.model.definition import StateDefinition
from agentflow.model.values import Model
from agentflow.runners.ledger import claim_of, key_of
from agentflow.runners.perform import Work
from agentflow.store.rows import EffectFound


async def ask_model(work: Work) -> ModelAnswer:
    """The answer of the state's model. Raises the classes of `agentflow.failures`; what was spent is in `work.used`."""
    state = work.state
    model = work.resources.model(state.spec.model or (state.prompt.model if state.prompt else None))
    question = _question(work, state)
    ledger = ReplyLedger(work, model)
    try:
        return await ask(work.resources.client(model), model, question, ledger)
    finally:
        work.used = ledger.used


def _spent(reply: ModelReply, model: Model) -> Usage:
    tokens_in, tokens_out = reply.tokens_in or 0, reply.tokens_out or 0
    price_in, price_out = model.input_price or Decimal(0), model.output_price or Decimal(0)
    cost = (tokens_in * price_in + tokens_out * price_out) / 1_000_000
    return Usage(reply.calls, tokens_in + tokens_out, cost)


def _question(work: Work, state: StateDefinition) -> ModelQuestion:
    prompt = state.prompt
    assert prompt is not None  # build() lets no model state through without one
    copy = work.copy()
    variables: Any = state.body(copy)
    if work.strict:
        _check_pure(work, copy)
    choices = choices_of(state.spec.outcome) if state.spec.outcome is not None else None
    answer = state.spec.answer
    return ModelQuestion(
        messages=tuple(render(prompt, _with_failure(variables, copy), choices=choices)),
        outcome=state.spec.outcome,
        answer=answer if isinstance(answer, type) and issubclass(answer, BaseModel) else None,
        max_tokens=state.spec.max_tokens or prompt.max_tokens,
        timeout=state.spec.timeout,
    )


def _with_failure(variables: Any, case: Context) -> Any:
    """A body may return its whole context; a prompt may then speak of the failure that led here."""
    if variables is case:
        return {**{name: getattr(case, name) for name in type(case).model_fields}, "failure": case.failure}
    return variables


def _check_pure(work: Work, copy: Any) -> None:
    if work.definition.context.keep(work.head.kept, copy)[0] is not work.head.kept:
        raise InvalidContext(f"state {work.head.state!r}", "its body changed the context; it only says what is needed")


@dataclass(slots=True)
class ReplyLedger:
    """The replies of one visit, in the run's ledger of effects."""

    work: Work
    model: Model
    used: Usage = NO_USAGE  # by the turns that were asked here: those read here were counted then

    def key(self, turn: int) -> str:
        return key_of(self.work, "llm", str(turn), self.work.head.generation)

    async def recorded(self, turn: int) -> str | None:
        """The reply of a turn, if one was recorded."""
        found = await self._begin(turn)
        if isinstance(found, EffectFound) and found.row.status == "done":
            return found.row.result
        return None

    async def record(self, turn: int, reply: str) -> None:
        """Keep a reply; it is durable when this returns."""
        head, key = self.work.head, self.key(turn)
        self.used = self.used.plus(_spent(ModelReply.from_json(reply), self.model))
        found = await self._begin(turn)
        begun_by = found.row.token
        settled = await self.work.store.settle_effect(
            head.run, self.work.token, key, "done", begun_by=begun_by, result=reply
        )
        if not settled:
            raise LeaseLost(f"run {head.run!r} belongs to another worker now")

    async def _begin(self, turn: int) -> Any:
        head = self.work.head
        claim = claim_of(self.work, "llm", item=str(turn), generation=head.generation)
        found = await self.work.store.begin_effect(claim)
        if found is None:
            raise LeaseLost(f"run {head.run!r} belongs to another worker now")
        return found
