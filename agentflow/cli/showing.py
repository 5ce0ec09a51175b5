"""How runs and waits are shown, in every command alike."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentflow.cli.output import fields, instant, say, say_table
from agentflow.model.folding import stored_context
from agentflow.model.shapes import is_list, is_object
from agentflow.model.views import Revision, Snapshot, Wait


def run_object(run: Snapshot[Any]) -> dict[str, Any]:
    """A run as `--json` shows it."""
    return {
        "id": run.id,
        "workflow": run.state.owner.name,
        "revision": run.revision,
        "status": run.status,
        "paused": run.paused,
        "blocked": run.blocked,
        "state": run.state.name,
        "end": None if run.end is None else run.end.name,
        "failure": None if run.failure is None else {"kind": run.failure.kind, "message": run.failure.message},
        "context": run.context.model_dump(mode="json"),
        "waits": [wait_object(wait) for wait in run.waits],
    }


def wait_object(wait: Wait) -> dict[str, Any]:
    """An open question as `--json` shows it."""
    return {
        "id": wait.id,
        "run": wait.run,
        "state": wait.state,
        "question": wait.question,
        "outcomes": list(wait.outcomes),
        "roles": list(wait.roles),
        "due": wait.due,
        "opened": wait.opened,
        "evidence": wait.evidence,
        "form": wait.form,
        "suggest": wait.suggest,
    }


def standing(run: Snapshot[Any]) -> str:
    """Where a run stands, in one line."""
    if run.end is not None:
        return f"{run.id} {run.status}: ended at {run.end.name}"
    if run.status == "failed" and run.failure is not None:
        return f"{run.id} failed in {run.state.name}: {run.failure.kind}: {run.failure.message}"
    if run.paused:
        return f"{run.id} is paused in {run.state.name}"
    if run.blocked is not None:
        return f"{run.id} is blocked in {run.state.name}: {run.blocked}"
    if run.waits:
        return f"{run.id} waits in {run.state.name} for {' or '.join(run.waits[0].outcomes)}"
    return f"{run.id} is {run.status} in {run.state.name}"


def show_run(run: Snapshot[Any], history: Sequence[Revision]) -> None:
    """A run with its context and history."""
    say(standing(run))
    say()
    fields(run.context.model_dump(mode="json"))
    say()
    show_history(history)


def raw_object(document: Mapping[str, Any], history: Sequence[Revision], why: str) -> dict[str, Any]:
    """A run as it is stored, as `--json` shows it; at an earlier revision where the history ends there."""
    run, last = document["run"], history[-1]
    is_past = last.number < run["revision"]
    return {
        "id": run["id"],
        "workflow": run["workflow"],
        "version": run["version"],
        "revision": last.number,
        "status": "running" if is_past else run["status"],
        "paused": run["paused"] and not is_past,
        "blocked": None if is_past else run["blocked"],
        "state": last.target,
        "end": None if is_past else run["end"],
        "failure": None if is_past else run["failure"],
        "context": stored_context(json.dumps(line.difference) for line in history) if is_past else document["context"],
        "not_read": why,
    }


def show_raw(document: Mapping[str, Any], history: Sequence[Revision], why: str) -> None:
    """A run of other code, as it is stored."""
    run = raw_object(document, history, why)
    say(f"{run['id']} is {run['status']} in {run['state']}, as stored by {run['workflow']} v{run['version']}")
    say(f"  {why}")
    say()
    fields(run["context"])
    say()
    show_history(history)


def show_history(history: Sequence[Revision]) -> None:
    """Every transition: from where, on what, past which guards, to where, and why."""
    say_table(
        ("#", "at", "from", "outcome", "guards", "to", "who", "why"),
        [
            (
                line.number,
                instant(line.at)[11:],
                line.source,
                line.outcome or (line.event if line.event not in {"done", "start"} else ""),
                " ".join(f"{'' if result else 'not '}{name}" for name, result in line.guards.items()),
                line.target,
                _who(line),
                _short(line.reason),
            )
            for line in history
        ],
    )


def told(line: Revision) -> str:
    """One transition in a line of its own: from where, on what, to where, past which guards, who and why."""
    event = line.outcome or ("" if line.event in {"done", "start", "fork"} else line.event)
    way = " ".join(part for part in (line.source, event, "->", line.target) if part)
    guards = ", ".join(f"{'' if result else 'not '}{name}" for name, result in line.guards.items())
    who = _who(line)
    parts = (f"({guards})" if guards else "", f"by {who}" if who else "", _short(line.reason))
    return "  ".join((way, *(part for part in parts if part)))


def _who(line: Revision) -> str:
    if line.actor is not None:
        return line.actor.subject
    if line.model is not None:
        return line.model + (f" ({line.tokens} tokens)" if line.tokens else "")
    return ""


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 60 else flat[:57] + "..."


def show_wait(wait: Wait) -> None:
    """A question with what the person is shown and what the answer carries."""
    say(wait.question)
    say()
    fields(
        {
            "wait": wait.id,
            "run": wait.run,
            "answers": ", ".join(wait.outcomes),
            "roles": ", ".join(wait.roles),
            "expires": instant(wait.due),
        }
    )
    if wait.evidence not in (None, "", [], {}):
        say()
        say("evidence")
        _show_evidence(wait.evidence)
    if wait.form is not None:
        say()
        say("fields")
        for name, field in wait.form.get("properties", {}).items():
            needed = "" if name in wait.form.get("required", ()) else ", optional"
            say(f"  {name}  ({_type_of(field)}{needed})")


def _show_evidence(evidence: Any) -> None:
    if is_object(evidence):
        for name, value in evidence.items():
            say(f"  {name}: {value}")
    elif is_list(evidence):
        for value in evidence:
            say(f"  - {value}")
    else:
        say(f"  {evidence}")


def _type_of(field: dict[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(_type_of(part) for part in field["anyOf"])
    if "enum" in field:
        return " | ".join(map(str, field["enum"]))
    return str(field.get("format") or field.get("type") or "any")
