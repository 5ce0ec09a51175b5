"""What holds for the project as a whole: sizes, names, the lock, imports, and nothing of one machine in its files."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import agentflow

ROOT = Path(__file__).parents[1]
MODULES = sorted(path for folder in ("agentflow", "definitions") for path in (ROOT / folder).rglob("*.py"))
MODULE_LINES, STATEMENTS, PUBLIC_NAMES = 600, 40, 25

# Hosts of package registries, and folders of the machine that something was written on. Written so that this file
# does not match itself.
FOREIGN = re.compile(r"(?:pypi|pythonhosted|npmjs)\.(?:org|com)|/(?:work|root)[/]", re.IGNORECASE)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_says_its_job_and_stays_small(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(source)), "no docstring"
    assert source.count("\n") <= MODULE_LINES


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_function_can_be_read_at_once(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert [f"{f.name} (line {f.lineno})" for f in functions if statements(f) > STATEMENTS] == []


def statements(function: ast.AST) -> int:
    return sum(isinstance(node, ast.stmt) for node in ast.walk(function)) - 1


def test_the_public_names_fit_on_one_screen_and_exist() -> None:
    assert len(agentflow.__all__) <= PUBLIC_NAMES
    assert [name for name in agentflow.__all__ if not hasattr(agentflow, name)] == []


@pytest.mark.parametrize("package", ["sqlalchemy", "openai", "asyncio", "transitions", "tenacity", "jinja2", "click"])
def test_importing_agentflow_loads_no_heavy_package(package: str) -> None:
    assert package not in modules_after("import agentflow")


@pytest.mark.parametrize("package", ["sqlalchemy", "openai"])
def test_importing_the_app_loads_no_heavy_package(package: str) -> None:
    assert package not in modules_after("from agentflow import App")


def modules_after(statement: str) -> set[str]:
    program = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def test_the_lock_names_no_address() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert [line for line in lock.splitlines() if "://" in line or line.startswith("-")] == []


def test_the_lock_satisfies_what_the_project_declares() -> None:
    locked = locked_versions()
    unmet = [
        str(wanted)
        for wanted in declared()
        if (version := locked.get(canonicalize_name(wanted.name))) is None or not wanted.specifier.contains(version)
    ]
    assert unmet == [], "run `make lock`"


def declared() -> Iterator[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"].values()
    groups = project["dependency-groups"].values()
    for entries in (project["project"]["dependencies"], *extras, *groups):
        yield from (Requirement(entry) for entry in entries if isinstance(entry, str))


def locked_versions() -> dict[str, str]:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9.-]+)==([^ ;\\]+)", lock, re.MULTILINE))


def test_no_file_names_a_registry_or_a_folder_of_one_machine() -> None:
    assert [f"{name_of(path)}: {found}" for path in project_files() for found in foreign_words(path)] == []


def foreign_words(path: Path) -> list[str]:
    return FOREIGN.findall(path.read_bytes().decode(errors="replace"))


def project_files() -> list[Path]:
    """What git tracks or would track."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]
