"""Prompts as authors write them: an inline template, or a file under `prompts/` with optional front matter.

    ---
    version: 3
    model: fast
    max_tokens: 300
    ---
    ## system
    You judge refund requests.

    ## user
    {{ notes | fenced }}

A line that is exactly `## system`, `## user` or `## assistant` begins a message of that role; without such a line the
whole text is one user message. The text is split before it is filled, so a value can't begin a message. Templates are
Jinja, in a sandbox: they see their variables, `choices` and the filter `fenced`, and nothing else.

Nothing here fills a template; that is `agentflow.llm.prompts`.
"""

import difflib
import functools
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

if TYPE_CHECKING:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

__all__ = [
    "Block",
    "Prompt",
    "PromptProblem",
    "Role",
    "environment",
    "fenced",
    "load_prompt",
    "placeholders",
    "prompts_root",
]

Role = Literal["system", "user", "assistant"]
_ROLES: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant"}
_MARK = re.compile(r"^## (system|user|assistant)[ \t]*$", re.MULTILINE)
_FIELDS = ("version", "model", "max_tokens")


class PromptProblem(ValueError):
    """A prompt cannot be used; the message is one line that says where, what and how to mend it."""


@dataclass(frozen=True, slots=True)
class Block:
    """The template of one message, and the line on which it begins."""

    role: Role
    template: str
    line: int = 1


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt that was read and whose syntax is right."""

    text: str
    """The template without its front matter."""
    source: str
    """`inline`, or the file's path below the prompts folder."""
    digest: str
    """SHA-256 of the file's bytes or of the inline text."""
    blocks: tuple[Block, ...]
    names: frozenset[str] = frozenset()
    """All names that the templates need from outside, `choices` among them."""
    version: str | None = None
    model: str | None = None
    max_tokens: int | None = None

    @property
    def uses_choices(self) -> bool:
        """Whether the template says itself where the list of choices goes."""
        return "choices" in self.names


def load_prompt(prompt: str | Path, root: Path | None) -> Prompt:
    """Read a prompt: a `str` is the template itself, a `Path` a file below `root`. Raises `PromptProblem`."""
    if isinstance(prompt, str):
        return _parsed(prompt, "inline", hashlib.sha256(prompt.encode(errors="surrogatepass")).hexdigest(), 1, {})
    content = _find(prompt, root).read_bytes()
    source = prompt.as_posix()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PromptProblem(f"prompt {source}: the file is not UTF-8 (byte {error.start})") from None
    text = text.replace("\r\n", "\n")
    fields, body, line = _front_matter(text, source)
    return _parsed(body, source, hashlib.sha256(content).hexdigest(), line, fields)


def placeholders(prompt: Prompt) -> frozenset[str]:
    """The names of the variables that the prompt needs; `choices`, which the engine gives, is not among them."""
    return prompt.names - {"choices"}


def prompts_root(defined_in: Path) -> Path | None:
    """The nearest folder `prompts` beside the file that defines the workflow, or above it.

    The search ends after a folder that holds a `pyproject.toml`, the root of a project.
    """
    for folder in defined_in.resolve().parents:
        if (folder / "prompts").is_dir():
            return folder / "prompts"
        if (folder / "pyproject.toml").is_file():
            return None
    return None


@functools.cache
def environment() -> "ImmutableSandboxedEnvironment":
    """The Jinja environment of all prompts: sandboxed, strict about missing names, without a loader or globals."""
    from jinja2 import StrictUndefined  # noqa: PLC0415  only programs with prompts pay for loading it
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415  the same

    made = ImmutableSandboxedEnvironment(undefined=StrictUndefined, autoescape=False)
    made.globals.clear()  # pyright: ignore[reportUnknownMemberType]
    made.filters["fenced"] = fenced  # pyright: ignore[reportUnknownMemberType]
    return made


def fenced(value: object, label: str = "data") -> str:
    """The value between two marks that it cannot contain, so that it can't pass for a part of the prompt.

    The same value gets the same marks each time: a prompt that is filled again is the same prompt.
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", label):
        raise ValueError(f"fenced({label!r}): a label is one word of ASCII letters, digits, '-' and '_'")
    text = str(value)
    mark = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
    shown = next((mark[:size] for size in range(12, len(mark)) if mark[:size] not in text), mark)
    return f"<{label}-{shown}>\n{text}\n</{label}-{shown}>"


# --- finding the file --------------------------------------------------------------------------------------------


def _find(path: Path, root: Path | None) -> Path:
    source = path.as_posix()
    if root is None:
        raise PromptProblem(f"prompt {source}: there is no folder 'prompts' beside the workflow's file or above it")
    if path.is_absolute():
        raise PromptProblem(f"prompt {source}: give the path relative to {root}")
    found = (root / path).resolve()
    if not found.is_relative_to(root.resolve()):
        raise PromptProblem(f"prompt {source}: the path leads out of {root}")
    if not found.is_file():
        raise PromptProblem(f"prompt {source}: no such file in {root}{_nearest_file(source, root)}")
    return found


def _nearest_file(source: str, root: Path) -> str:
    names = [file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file()]
    return _nearest(source, names)


def _nearest(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


# --- reading it --------------------------------------------------------------------------------------------------


def _front_matter(text: str, source: str) -> tuple[dict[str, Any], str, int]:
    """The fields, the text below them, and the line on which that text begins."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return {}, text, 1
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        raise PromptProblem(f"prompt {source}, line 1: the front matter is never closed by a line '---'")
    fields = _fields("\n".join(lines[1:end]), source)
    return fields, "\n".join(lines[end + 1 :]), end + 2


def _fields(text: str, source: str) -> dict[str, Any]:
    import yaml  # noqa: PLC0415  only files with front matter pay for loading it

    try:
        loaded: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 2 if mark else 1
        raise PromptProblem(f"prompt {source}, line {line}: {getattr(error, 'problem', error)}") from None
    if loaded is None:
        return {}
    if not _is_mapping(loaded):
        raise PromptProblem(f"prompt {source}: the front matter must be lines of 'name: value'")
    for name in loaded:
        if name not in _FIELDS:
            hint = _nearest(str(name), _FIELDS) or f"; there are {', '.join(_FIELDS)}"
            raise PromptProblem(f"prompt {source}: unknown field {str(name)!r} in the front matter{hint}")
    return loaded


def _is_mapping(value: object) -> TypeGuard[dict[Any, Any]]:
    return isinstance(value, dict)


def _parsed(text: str, source: str, digest: str, line: int, fields: dict[str, Any]) -> Prompt:
    blocks = tuple(_blocks(text, source, line))
    if not blocks:
        raise PromptProblem(f"prompt {source} is empty")
    return Prompt(text, source, digest, blocks, _names(blocks, source), **_checked(fields, source))


def _checked(fields: dict[str, Any], source: str) -> dict[str, Any]:
    version, model, tokens = (fields.get(name) for name in _FIELDS)
    if isinstance(version, bool | list | dict):
        raise PromptProblem(f"prompt {source}: version must be a number or a text")
    if not isinstance(model, str | None):
        raise PromptProblem(f"prompt {source}: model must be a text, the model's key in App(models=...)")
    if tokens is not None and (type(tokens) is not int or tokens < 1):
        raise PromptProblem(f"prompt {source}: max_tokens must be a whole number above 0")
    return {"version": None if version is None else str(version), "model": model, "max_tokens": tokens}


def _blocks(text: str, source: str, line: int) -> Iterator[Block]:
    marks = list(_MARK.finditer(text))
    head = text[: marks[0].start()] if marks else text
    if head.strip():
        if marks:
            raise PromptProblem(f"prompt {source}, line {line}: there is text above the first line {marks[0][0]!r}")
        yield Block("user", *_trimmed(head, line))
    ends = [*(mark.start() for mark in marks[1:]), *([len(text)] if marks else [])]
    for mark, end in zip(marks, ends, strict=True):
        template = text[mark.end() : end]
        if template.strip():
            yield Block(_ROLES[mark[1]], *_trimmed(template, line + text.count("\n", 0, mark.end())))


def _trimmed(template: str, line: int) -> tuple[str, int]:
    """Without the empty lines around it, which only set the marks of the roles apart."""
    kept = template.lstrip("\n")
    return kept.rstrip("\n"), line + len(template) - len(kept)


def _names(blocks: Sequence[Block], source: str) -> frozenset[str]:
    from jinja2 import TemplateSyntaxError  # noqa: PLC0415  only programs with prompts pay for loading it
    from jinja2.meta import find_referenced_templates, find_undeclared_variables  # noqa: PLC0415  the same

    found = set[str]()
    for block in blocks:
        try:
            tree = environment().parse(block.template)
            found |= find_undeclared_variables(tree)
        except TemplateSyntaxError as error:
            line = block.line + error.lineno - 1
            raise PromptProblem(f"prompt {source}, line {line}: {error.message}") from None
        if list(find_referenced_templates(tree)):
            raise PromptProblem(f"prompt {source}: a prompt can't include or extend another file")
    return frozenset(found)
