"""What a start needs: a run id that can stand in keys and URLs, and a context that can be stored."""

import re
from datetime import datetime
from typing import Any

from agentflow.engine.advance import begin
from agentflow.engine.limits import check_size
from agentflow.errors import InvalidContext, InvalidInput
from agentflow.model.context import Context
from agentflow.model.definition import Definition
from agentflow.model.source import digest
from agentflow.runners.records import first_row, standing_of
from agentflow.store.rows import NewRun
from agentflow.store.texts import checked_name

RUN_ID = re.compile(r"[\w#@+=~.,/-]{1,200}")


def check_run_id(run: str) -> str:
    """The id, if it can be one. Raises `InvalidInput`."""
    if not RUN_ID.fullmatch(run):
        raise InvalidInput(
            f"run id {run!r}: use 1 to 200 letters, digits and the characters # @ + = ~ . , / _ - (no space, no colon)"
        )
    return run


def new_run(definition: Definition, context: Context, *, run: str, now: datetime, batch: str | None) -> NewRun:
    """A run that is to be created. Raises `InvalidInput` for a context that cannot be stored or is too large."""
    if batch is not None:
        checked_name(batch, "batch=")
    kept, difference = _keep(definition, context)
    if (too_large := check_size(definition.limits, kept)) is not None:
        raise InvalidInput(too_large)
    head = begin(definition, run, kept, now).head
    return NewRun(
        id=run,
        workflow=definition.name,
        version=definition.version,
        shape=definition.shape,
        fingerprint=digest(definition.name, difference.text()),
        standing=standing_of(head, now),
        history=first_row(head, difference),
        batch=batch,
        values=difference.blobs,
    )


def _keep(definition: Definition, context: Any) -> Any:
    plan = definition.context
    if not isinstance(context, plan.kind):
        raise InvalidInput(f"workflow {definition.name!r} takes a {plan.kind.__name__}, not a {type(context).__name__}")
    try:
        return plan.start(context)
    except InvalidContext as error:
        raise InvalidInput(str(error)) from None
