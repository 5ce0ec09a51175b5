"""Planted mistakes, one a line; each is found by mypy strict and by pyright strict.

An ignore comment that nothing needs is an error in both checkers, so a clean run proves that every mistake is found.
"""

from collections.abc import AsyncIterator, Sequence

from agentflow import Actor, Answer, App, Context, Retry, Run, Stored, SyncRun, Workflow
from agentflow.effects import Fate, Happened
from agentflow.failures import Refused
from agentflow.testing import expires, play, says
from tests.typing.sample_refund import (
    Assessment,
    Case,
    Finding,
    RefundDecision,
    Risk,
    Shop,
    Verdict,
    app,
    approval,
    chargebacks,
    fetch,
    gather,
    make_shop,
    paid,
    pay,
    refund,
    refused,
    risk,
    small,
)
from tests.typing.sample_shapes import (
    Archive,
    Delivery,
    Order,
    Parcel,
    Person,
    delivery,
    done,
    flow,
    load,
    measure,
    orders,
    parcel,
    read_news,
    screen,
    screening,
    search_lists,
    weigh,
    write,
)
from tests.typing.sample_shapes import Case as Big


class Other(Context):
    x: int = 0


other = Workflow("other", Other)
away = other.end("away")


def other_guard(case: Other) -> bool:
    return case.x > 0


def answer_guard(case: Case, answer: Answer[Risk, Assessment]) -> bool:
    return answer.outcome is Risk.LOW


async def slow_guard(case: Case) -> bool:
    return case.amount > 0


def names(case: Big) -> Sequence[str]:
    return [case.name]


async def other_undo(case: Other, run: Run[Shop]) -> None:
    case.x = 0


async def find_or_none(case: Case, run: Run[Shop], key: str) -> str | None:
    return await run.services.find(key=key)


async def find_amount(case: Case, run: Run[Shop], key: str) -> Fate[int]:
    return Happened(3)


def find_now(case: Case, run: Run[Shop], key: str) -> Fate[str]:
    return Happened(key)


async def find_mute(case: Case, run: Run[Shop], key: str) -> Fate[str]:
    return Happened()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue, reportUnknownVariableType]  # happened, but with which value


async def find_bare(case: Case, run: Run[Shop], key: str) -> Fate[str]:
    return key  # type: ignore[return-value]  # pyright: ignore[reportReturnType]  # a bare value


# Outcomes

risk.on(Finding.CLEAR).to(pay)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # member of another enum
risk.on(Risk.LOW, Finding.CLEAR).to(pay)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the same, in second place
risk.on(Risk.LWO).to(pay)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]  # misspelt member
risk.on("low").to(pay)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # string for a member
risk.on().to(pay)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue, reportUnknownMemberType]  # no outcome
risk.to(pay)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # a model decides: no `.to`
pay.on(Risk.LOW)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # a plain step decides nothing: no `.on`
measure.to(done)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # a deciding step has no `.to`
measure.on(Delivery.LOST).to(done)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # foreign enum on a deciding step
screen.on(done).to(done)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # end of the parent, not of the child
screen.to(done)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # a call ends in more than one way
screening.build(start=screen, transitions=[])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # state of another workflow
risk.expired.to(refused)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # a model does not expire
delivery.expired.to(done)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # waits without `expires=`
gather.expired.to(refused)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # fork without `expires=`

# Targets

risk.on(Risk.LOW).to(payy)  # type: ignore[name-defined]  # pyright: ignore[reportUndefinedVariable, reportUnknownArgumentType]  # misspelt state
risk.on(Risk.LOW).to("pay")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # string for a state
risk.on(Risk.LOW).to(small)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # guard for a state
pay.to(away)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # end of a workflow with another context
pay.to(gather)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # a fork is left, not entered
load.to(weigh)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # an item is entered by `each` only
pay.to(paid, refused)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # two targets

# Guards

risk.on(Risk.LOW).when(slow_guard).to(pay)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # asynchronous
risk.on(Risk.LOW).when(other_guard).to(pay)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # on another context
risk.on(Risk.LOW).when(answer_guard).to(pay)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # on the answer: `.store` puts it into the context
risk.on(Risk.LOW).when(small(Case(order_id=""))).to(pay)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # called, not named
risk.on(Risk.LOW).when(lambda case: case.amuont < 5).to(pay)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]  # misspelt field
risk.when(small)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # guard before the outcome

# Failures

risk.failed(Refused("no")).to(approval)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # instance for a class
risk.failed("Refused").to(approval)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # string for a class
risk.failed(KeyboardInterrupt).to(approval)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # not an Exception
risk.failed().to(approval)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue, reportUnknownMemberType]  # no class: write `risk.failed`
risk.failed.undo().to(refused)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # only the workflow undoes
refund.failed.undo().to(approval)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # what is undone must end

# Groups

fetch.fork(chargebacks)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]  # one branch is no fork
fetch.fork(chargebacks, paid)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]  # end as a branch
fetch.fork(chargebacks, load)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # branch with another context
fetch.fork(chargebacks, pay, mode="most")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]  # no such mode
gather.to(risk)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # a fork is left by `.join`
gather.join(away)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # joins into another context
load.each(names, weigh, max_items=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # strings for orders
flow.each(names, weigh, max_items=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the same, at the start
load.each(orders, weigh)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]  # no cap
load.each(orders, load, max_items=3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]  # step for an item
load.each(orders, weigh, max_items=3, key=len)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # key of a wrong type
load.graph({write: [done]})  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]  # needs an end
load.graph({write: [risk]})  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]  # needs a state with another context
load.graph({write: load})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]  # needs a state, not a list
refund.fork(chargebacks)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]  # one branch is no fork, at the start
refund.fork(chargebacks, load)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # branch with another context, at the start
flow.graph({write: [done]})  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]  # needs an end, at the start

# The table

refund.build(start=fetch, transitions=[risk.on(Risk.LOW)])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]  # unfinished row
refund.build(start=fetch, transitions=[risk.failed])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]  # unfinished failure row
refund.build(start=fetch, transitions=[gather])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]  # unfinished fork
refund.build(start=fetch, transitions=[pay])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]  # state for a row
refund.build(start=paid, transitions=[])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # starts at an end
flow.build(start=weigh, transitions=[])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # starts with an item
refund.build(start=refund.fork, transitions=[])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # starts with a group that was not made
refund.build(start=screening.fork(search_lists, read_news), transitions=[])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # starts with a group of another context
refund.build(start=fetch, transitions=[load.to(done)])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]  # row with another context
refund.build(start=fetch)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # no table

# Definitions

Workflow("w", Order)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]  # not a Context
Workflow("w", Case, services=Shop())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # instance for a class
Workflow("w", Case, Shop)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # services by position
Retry(4)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # attempts by position
refund.end("x", fail=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # misspelt option
refund.llm(Risk)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]  # no prompt
refund.llm(Risk, prompt=["refund/risk.md"])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]  # list for a prompt
refund.react(Risk, prompt=3, tools=[], max_turns=3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]  # number for a prompt
refund.llm(Risk.LOW, prompt="x")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]  # member for an enum
refund.llm(Risk, prompt="x", max_token=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]  # misspelt option
refund.react(Risk, prompt="x", tools=[len], max_turns=3)  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]  # synchronous tool
refund.react(Risk, prompt="x", tools=[])  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]  # turns without a bound
refund.human(Verdict, expires=3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]  # number for a timedelta
refund.step(timeout=30)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # number for a timedelta
refund.step(undo=other_undo)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # undo on another context
flow.signal(Parcel, correlate=lambda parcel: parcel.trakcing)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType]  # misspelt payload field
flow.call(flow.end)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # not a workflow

# Bodies, refused by their decorator


@refund.step()  # type: ignore[arg-type, type-var]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]  # no `run`
async def one(case: Case) -> None: ...


@refund.step()  # type: ignore[arg-type, type-var]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]  # another context
async def foreign(case: Other, run: Run[Shop]) -> None: ...


@refund.step()  # type: ignore[arg-type, type-var]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]  # other services
async def served(case: Case, run: Run[Archive]) -> None: ...


@refund.step()  # type: ignore[arg-type, type-var]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]  # `async def` with a SyncRun
async def mixed(case: Case, run: SyncRun[Shop]) -> None: ...


@refund.step()  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]  # `def` with a Run
def reversed_mix(case: Case, run: Run[Shop]) -> None: ...


@refund.step()  # type: ignore[type-var]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]  # decides or not
async def perhaps(case: Case, run: Run[Shop]) -> Risk | None: ...


@refund.step()  # type: ignore[type-var]  # pyright: ignore[reportArgumentType, reportCallIssue, reportUntypedFunctionDecorator]  # answers with a string
async def worded(case: Case, run: Run[Shop]) -> str:
    return "low"


@refund.step  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportCallIssue, reportUntypedFunctionDecorator]  # no parentheses
async def bare(case: Case, run: Run[Shop]) -> None: ...


@refund.llm(Risk, prompt="x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # a string is not variables
def wordy(case: Case) -> str:
    return case.order_id


@refund.llm(Risk, prompt="x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # asynchronous variables
async def late(case: Case) -> Case:
    return case


@refund.human(Verdict)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # a string is not a Question
def asks(case: Case) -> str:
    return "Well?"


@flow.call(screening)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the parent's context, not the child's
def child(case: Big) -> Big:
    return case


@flow.sleep()  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # number for a timedelta
def nap(case: Big) -> int:
    return 3


@flow.item(Order)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # an item of another type
async def itemized(case: Big, order: str, run: Run[Archive]) -> None: ...


@flow.stream(int)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # chunks of another type
async def chunked(case: Big, run: Run[Archive]) -> AsyncIterator[str]:
    yield "a"


@flow.runs(screening)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # runs, not their ids
def spawned(case: Big) -> Sequence[Person]:
    return []


@risk.store  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # another state's outcome
def _(case: Case, answer: Answer[Finding, Assessment]) -> None: ...


@risk.store  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # other data
def _(case: Case, answer: Answer[Risk, RefundDecision]) -> None: ...


@risk.store  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # another context
def _(case: Other, answer: Answer[Risk, Assessment]) -> None: ...


@load.store  # type: ignore[attr-defined, untyped-decorator]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUntypedFunctionDecorator]  # a step writes in its body
def _(case: Big, answer: Answer[None, None]) -> None: ...


# Inside a body


async def body(case: Case, run: Run[Shop], alone: Run) -> None:
    case.amuont = 3  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]  # misspelt field
    case.notes.append(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # item of a wrong type
    case.notes.pop()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # an Append field only grows
    case.notes[0] = "x"  # type: ignore[index]  # pyright: ignore[reportIndexIssue]  # the same
    case.notes = ["x"]  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]  # the same
    case.failure = None  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]  # read-only
    print(case.failure.message)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]  # there may be none
    await run.services.order_totl("x")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # misspelt service
    await alone.services.order_total("x")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # a workflow without services
    case.amount = run.services.order_total("x")  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]  # no await
    run.effect("pay", lambda key: run.services.pay("x", case.amount, key=key))  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]  # no await
    await run.effect("pay", run.services.pay("x", case.amount, key=""))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # called, not passed
    await run.effect("pay", lambda: run.services.pay("x", case.amount, key=""))  # type: ignore[arg-type, misc]  # pyright: ignore[reportArgumentType]  # takes no key
    case.amount = await run.effect("pay", lambda key: run.services.pay("x", case.amount, key=key))  # type: ignore[arg-type, return-value]  # pyright: ignore[reportAttributeAccessIssue]  # wrong type
    await run.effect("a", lambda key: run.services.pay("x", case.amount, key=key), unclear=find_or_none)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # a value or None does not tell what happened
    await run.effect("b", lambda key: run.services.pay("x", case.amount, key=key), unclear=find_amount)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]  # another type than the call's
    await run.effect("c", lambda key: run.services.pay("x", case.amount, key=key), unclear=find_now)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # synchronous
    await run.effect("d", lambda key: run.services.pay("x", case.amount, key=key), unclear="again")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # no such word
    run.spawn(screening, case)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]  # another workflow's context
    run.transaction.execute("delete from x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # string for a statement
    await fetch(case)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # no `run`
    await fetch(case=case, run=run)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # by keyword


# The program


async def program() -> None:
    await app.start(refund, Other())  # type: ignore[misc]  # pyright: ignore[reportArgumentType]  # another context
    await app.start("refund", Case(order_id=""))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # string for a workflow
    await app.start(refund, Case())  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # missing field
    app.start(refund, Case(order_id=""))  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]  # no await
    await app.decide("w", Verdict.APPROVE)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # nobody decides
    await app.decide("w", "approve", actor=Actor("me"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # string for a member
    await app.decide("r", "w", Verdict.APPROVE, actor=Actor("me"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the wait's id is enough
    await app.decide((await app.get("r")).waits[0], Verdict.APPROVE, actor=Actor("me"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # a wait for its id
    await app.signal("parcel", Parcel(tracking="", grams=1))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # string for a signal
    await app.skip("r", "paid", actor=Actor("me"), reason="")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # string for a state
    await app.skip("r", paid, actor=Actor("me"))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # no reason
    await app.pause("r", because="")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # misspelt option
    print((await app.get("r")).context.amount)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]  # without the workflow the context is untyped
    print((await app.get("r", refund)).end == "paid")  # type: ignore[comparison-overlap]  # pyright: ignore[reportUnnecessaryComparison]  # string for an end
    app.schedule("0 3 * * *", refund, lambda at: Other())  # type: ignore[arg-type, return-value]  # pyright: ignore[reportArgumentType]  # another context
    app.stream("r", load)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]  # not a stream
    app.list_sync(status="done")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # no such status


App(refund)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # one for a list
App([refund], services=[make_shop()])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]  # called, not passed
App([refund], models={"fast": "gpt-5-mini"})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]  # string for a Model

# Tests

says(risk, Finding.CLEAR)  # type: ignore[arg-type, misc]  # pyright: ignore[reportArgumentType, reportCallIssue]  # member of another enum
says(approval, Verdict.APPROVE, Assessment(signals=[]))  # type: ignore[misc]  # pyright: ignore[reportArgumentType]  # other data
says(parcel, Order(id=""))  # type: ignore[misc]  # pyright: ignore[reportArgumentType, reportCallIssue]  # another payload
says(risk, Risk.LOW)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]  # no data
expires(risk)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # never expires
play(refund, Other(), Shop())  # type: ignore[misc]  # pyright: ignore[reportArgumentType]  # another context
play(refund, Case(order_id=""), Archive())  # type: ignore[misc]  # pyright: ignore[reportArgumentType]  # other services
play(refund, Case(order_id=""), Shop(), script=[says(write, "x")])  # type: ignore[misc]  # pyright: ignore[reportArgumentType]  # state with another context


# Versions


def as_it_is(old: Stored) -> Stored:
    return Stored(old.state, {**old.context, "notes": ""}, old.visits)


def as_a_dict(old: Stored) -> dict[str, object]:
    return old.context


def of_the_context(case: Case) -> Case:
    return case


refund.migration(from_version=1)(as_it_is)
refund.migration(from_version="1")(as_it_is)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # versions are numbers
refund.migration(from_version=1)(as_a_dict)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # no Stored comes back
refund.migration(from_version=1)(of_the_context)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the class of today, not what was stored
refund.build(start=fetch, transitions=[], renamed={"get": fetch, "payed": paid, "risk.SMALL": Risk.LOW})
refund.build(start=fetch, transitions=[], renamed={"get": "fetch"})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]  # string for a state
refund.build(start=fetch, transitions=[], renamed={"get": done})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]  # an end of another workflow
