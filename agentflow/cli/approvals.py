"""`approvals`: see what waits for a person, and decide it; the run is driven on."""

import json
from typing import Any

import click
from pydantic import BaseModel, ValidationError

from agentflow.cli.commands import common
from agentflow.cli.driving import drive_on, one_wait, tell
from agentflow.cli.loading import Options, load_app
from agentflow.cli.output import age, instant, say_json, say_table
from agentflow.cli.showing import show_wait, wait_object
from agentflow.cli.typed import json_object, named_values
from agentflow.errors import InvalidInput
from agentflow.model.check import nearest
from agentflow.model.context import describe
from agentflow.model.definition import StateDefinition
from agentflow.model.values import Actor
from agentflow.model.views import Wait


@click.group()
def approvals() -> None:
    """See what waits for a person, and decide it."""


@approvals.command("list")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@common
def list_(options: Options, limit: int) -> None:
    """Open questions, oldest first.

    Example: agentflow approvals list
    """
    waits = load_app(options).waits_sync(limit=limit)
    if options.json:
        for wait in waits:
            say_json(wait_object(wait))
        return
    say_table(
        ("wait", "age", "expires", "roles", "question"),
        [(wait.id, age(wait.opened), instant(wait.due), ", ".join(wait.roles), _line(wait.question)) for wait in waits],
    )


def _line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 70 else flat[:67] + "..."


@approvals.command()
@click.argument("wait", metavar="WAIT|RUN")
@common
def show(options: Options, wait: str) -> None:
    """A question, its evidence, and the fields of its answer.

    Example: agentflow approvals show ticket-7
    """
    found = one_wait(load_app(options), wait)
    if options.json:
        say_json(wait_object(found))
    else:
        show_wait(found)


def answering(command: Any) -> Any:
    """The options of every command that answers."""
    for option in (
        click.option("--no-drive", is_flag=True, help="Leave the run to a worker."),
        click.option("--request", metavar="ID", help="Repeating a request id does nothing."),
        click.option("--comment", "--note", default="", metavar="TEXT"),
        click.option("--role", "roles", multiple=True, metavar="ROLE", help="A role of the person; may be repeated."),
        click.option("--as", "user", required=True, metavar="USER", help="Who decides."),
        click.option("--data", metavar="JSON", help="All fields of the answer at once."),
        click.option("--field", "fields", multiple=True, metavar="NAME=VALUE", help="A field of the answer."),
    ):
        command = option(command)
    return command


@approvals.command()
@click.argument("wait", metavar="WAIT|RUN")
@click.argument("outcome")
@answering
@common
def decide(options: Options, wait: str, outcome: str, **answer: Any) -> int:
    """Answer a question with one of its outcomes, and drive the run on.

    Example: agentflow approvals decide ticket-7 HAND_OVER --as ada --role refunds
    """
    return _decide(options, wait, outcome, **answer)


@approvals.command()
@click.argument("wait", metavar="WAIT|RUN")
@answering
@common
def approve(options: Options, wait: str, **answer: Any) -> int:
    """Answer APPROVE, and drive the run on.

    Example: agentflow approvals approve ticket-7 --as ada --role refunds
    """
    return _decide(options, wait, "approve", **answer)


@approvals.command()
@click.argument("wait", metavar="WAIT|RUN")
@answering
@common
def reject(options: Options, wait: str, **answer: Any) -> int:
    """Answer REJECT, and drive the run on.

    Example: agentflow approvals reject ticket-7 --as ada --role refunds --comment "no receipt"
    """
    return _decide(options, wait, "reject", **answer)


def _decide(
    options: Options,
    target: str,
    outcome: str,
    *,
    fields: tuple[str, ...],
    data: str | None,
    user: str,
    roles: tuple[str, ...],
    comment: str,
    request: str | None,
    no_drive: bool,
) -> int:
    app = load_app(options)
    if no_drive:
        app.leave_to_workers()
    wait: Wait = one_wait(app, target)
    state: StateDefinition = app.state_of_sync(wait)
    member = member_of(state, wait, outcome)
    form = form_data(state.spec.answer, wait, fields, data)
    actor = Actor(user, source="cli", roles=roles)
    reply = app.decide_sync(wait.id, member, form, actor=actor, comment=comment, request=request)
    code = tell(options, wait.id, reply)
    if reply.status == "refused" or no_drive:
        return code
    return drive_on(options, app, wait.run)


def member_of(state: StateDefinition, wait: Wait, outcome: str) -> Any:
    """The member that was typed: by name or value, whatever its case."""
    wanted = outcome.casefold().replace("-", "_").replace(" ", "_")
    for member in state.spec.outcome or ():
        names = (member.name, str(member.value))
        if wanted in {name.casefold().replace("-", "_").replace(" ", "_") for name in names}:
            return member
    allowed = ", ".join(wait.outcomes)
    raise InvalidInput(f"{wait.id} takes {allowed}, not {outcome!r}{nearest(outcome.upper(), list(wait.outcomes))}")


def form_data(form: type[BaseModel] | None, wait: Wait, fields: tuple[str, ...], data: str | None) -> BaseModel | None:
    """The answer's data, from `--data`, `--field` and what the question suggests. Raises `InvalidInput`."""
    if form is None:
        if fields or data:
            raise InvalidInput(f"{wait.id} takes no fields beside its outcome")
        return None
    values: dict[str, Any] = dict(wait.suggest or {})
    if data is not None:
        values.update(json_object(data, "--data"))
    values.update(named_values(form, fields, "--field"))
    try:
        return form.model_validate_json(json.dumps(values))
    except ValidationError as error:
        raise InvalidInput(f"{form.__name__}: {describe(error)}") from None
