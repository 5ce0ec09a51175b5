"""Find the App that a command is about, and the workflows that ship with agentflow."""

import importlib
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from agentflow.app.app import App
from agentflow.errors import ConfigurationError, NotFound
from agentflow.model.check import nearest
from agentflow.model.definition import Definition


@dataclass(frozen=True, slots=True)
class Options:
    """What every command takes."""

    app: str | None = None
    db: str | None = None
    json: bool = False
    verbose: bool = False

    def over(self, outer: "Options") -> "Options":
        """These options, with those given before the command where none were given here."""
        return Options(
            self.app or outer.app, self.db or outer.db, self.json or outer.json, self.verbose or outer.verbose
        )


def load_app(options: Options) -> App:
    """The App of `--app MODULE:OBJECT`, else of `[tool.agentflow] app` in the nearest pyproject.toml."""
    target, root = (options.app, Path.cwd()) if options.app else _from_pyproject()
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    if str(bundled()) not in sys.path:
        sys.path.append(
            str(bundled())
        )  # behind everything else: the shipped workflows, for `--app definitions.app:app`
    app = _import(target)
    if options.db is not None:
        app.use_store(options.db)
    context = click.get_current_context(silent=True)
    if context is not None:
        context.call_on_close(app.close_sync)
    return app


def _from_pyproject() -> tuple[str, Path]:
    here = Path.cwd()
    for folder in (here, *here.parents):
        file = folder / "pyproject.toml"
        if file.is_file():
            try:
                found = tomllib.loads(file.read_text(encoding="utf-8"))
            except tomllib.TOMLDecodeError as error:
                raise ConfigurationError(f"{file}: {error}") from None
            target = found.get("tool", {}).get("agentflow", {}).get("app")
            if isinstance(target, str):
                return target, folder
    raise ConfigurationError(
        'no App: pass --app MODULE:OBJECT, or write [tool.agentflow] app = "MODULE:OBJECT" into pyproject.toml'
    )


def _import(target: str) -> App:
    module_name, _, name = target.partition(":")
    if not module_name or not name:
        raise ConfigurationError(f"app {target!r}: write MODULE:OBJECT, such as shop.flows:app")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(error.name + ".")):
            raise  # a module of theirs imports something that is missing: their traceback says where
        raise ConfigurationError(f"app {target!r}: there is no module {error.name!r}") from None
    found: Any = getattr(module, name, None)
    if not isinstance(found, App):
        apps = [key for key, value in vars(module).items() if isinstance(value, App)]
        hint = nearest(name, apps) or (f"; it has {', '.join(apps)}" if apps else "; it has no App")
        what = "is no App" if found is not None else "does not exist"
        raise ConfigurationError(f"app {target!r}: {name!r} {what} in {module_name}{hint}")
    return found


def find_workflow(app: App, name: str) -> Definition:
    """The newest version of the workflow of that name, or the one of NAME@VERSION. Raises `NotFound`."""
    bare, mark, version = name.rpartition("@")
    if mark and version.isdigit():
        exact = [one for one in app.definitions if (one.name, one.version) == (bare, int(version))]
        if exact:
            return exact[0]
    found = [definition for definition in app.definitions if definition.name == name]
    if not found:
        known = sorted({definition.name for definition in app.definitions})
        raise NotFound(f"there is no workflow {name!r}{nearest(name, known) or '; there are ' + ', '.join(known)}")
    return max(found, key=lambda definition: definition.version)


def bundled() -> Path:
    """The folder that holds `definitions`, `prompts` and `inputs`: in the package, or in a checkout."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "_bundled"
    return inside if inside.is_dir() else package.parent


def bundled_inputs() -> Path:
    """The inputs of the shipped workflows."""
    root = bundled()
    return root / "inputs" if (root / "inputs").is_dir() else root / "examples" / "inputs"
