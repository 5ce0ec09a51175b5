"""`doctor`: what is missing on this machine."""

import importlib.metadata
import os
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from agentflow.cli.commands import common
from agentflow.cli.exits import ExitCode
from agentflow.cli.loading import Options, load_app
from agentflow.cli.output import say_json, say_table
from agentflow.errors import AgentflowError, StoreError

PACKAGES = ("agentflow-engine", "openai", "pydantic", "sqlalchemy", "transitions", "tenacity")


@click.command()
@common
def doctor(options: Options) -> int:
    """Say what is missing on this machine: packages, the App, its database, a model's key.

    Nothing is changed, no model is asked, and no key is shown. Example: agentflow doctor
    """
    checks: list[tuple[str, str, str]] = [("python", "ok", platform.python_version()), *_packages()]
    app, found = _checked("app", lambda: load_app(options))
    checks.append((*found[:2], _app_line(app) if app is not None else found[2]))
    code = ExitCode.OK if app is not None else ExitCode.DEFINITION
    if app is not None:
        reached, database = _checked("database", app.ping_sync)
        checks.append((*database[:2], str(reached) if reached else database[2]))
        code = ExitCode.OK if reached else ExitCode.NO_DATABASE
        checks += [("prompt", "ok", line) for line in _prompts(app)]
    checks += [_key(), ("clock", "ok", f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")]
    if options.json:
        say_json({"checks": [{"what": what, "verdict": verdict, "detail": detail} for what, verdict, detail in checks]})
    else:
        say_table(("what", "verdict", "detail"), checks)
    return code


def _packages() -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    for name in PACKAGES:
        try:
            found.append((name, "ok", importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            found.append((name, "problem", "is not installed"))
    return found


def _checked(what: str, act: Callable[[], Any]) -> tuple[Any, tuple[str, str, str]]:
    try:
        return act(), (what, "ok", "")
    except StoreError as error:
        return None, (what, "problem", str(error))
    except (AgentflowError, ImportError, SyntaxError) as error:
        return None, (what, "problem", str(error).replace("\n", " "))


def _app_line(app: Any) -> str:
    return ", ".join(f"{definition.name} v{definition.version}" for definition in app.definitions)


def _prompts(app: Any) -> list[str]:
    states = [state for definition in app.definitions for state in definition.states.values()]
    return sorted({state.prompt.source for state in states if state.prompt and state.prompt.source != "inline"})


def _key() -> tuple[str, str, str]:
    address = os.environ.get("OPENAI_BASE_URL", "the provider's own address")
    if os.environ.get("OPENAI_API_KEY"):
        return "model key", "ok", f"OPENAI_API_KEY is set; asks {address}"
    return "model key", "missing", "OPENAI_API_KEY is not set: model states will be blocked until it is"
