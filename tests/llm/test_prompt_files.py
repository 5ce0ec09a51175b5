"""Prompts as written: where they are found, what is read, and one clear line for whatever is wrong."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from agentflow.model.prompts import Prompt, PromptProblem, load_prompt, placeholders, prompts_root

Written = Callable[..., Prompt]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Write a prompt file and load it."""

    def write(content: str | bytes, name: str = "refund/risk.md") -> Prompt:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return load_prompt(Path(name), tmp_path)

    return write


def test_an_inline_prompt_is_its_own_text() -> None:
    prompt = load_prompt("Spam or ok? {{ text }}", None)

    assert (prompt.text, prompt.source, prompt.version) == ("Spam or ok? {{ text }}", "inline", None)
    assert prompt.digest == hashlib.sha256(b"Spam or ok? {{ text }}").hexdigest()
    assert [(block.role, block.template) for block in prompt.blocks] == [("user", "Spam or ok? {{ text }}")]


def test_a_file_brings_its_fields_and_the_digest_of_its_bytes(written: Written) -> None:
    content = "---\nversion: 3\nmodel: fast\nmax_tokens: 300\n---\nHow risky is {{ amount }}?\n"
    prompt = written(content)

    assert (prompt.version, prompt.model, prompt.max_tokens) == ("3", "fast", 300)
    assert (prompt.source, prompt.text) == ("refund/risk.md", "How risky is {{ amount }}?\n")
    assert prompt.digest == hashlib.sha256(content.encode()).hexdigest()


@pytest.mark.parametrize(
    "content", ["Hello {{ a }}", "---\n---\nHello {{ a }}", "\ufeff---\r\nversion: 1\r\n---\r\nHello {{ a }}"]
)
def test_front_matter_may_be_absent_or_empty_or_come_from_elsewhere(written: Written, content: str) -> None:
    assert written(content).blocks[0].template == "Hello {{ a }}"


def test_an_inline_prompt_has_no_front_matter() -> None:
    assert load_prompt("---\nversion: 1\n---\nx", None).version is None


def test_roles_begin_at_their_lines(written: Written) -> None:
    prompt = written(
        "---\nversion: 1\n---\n\n## system\nYou judge.\n\n## user\nA\n\n## Notes\n## users\nB\n## assistant\nC"
    )

    assert [(block.role, block.template, block.line) for block in prompt.blocks] == [
        ("system", "You judge.", 6),
        ("user", "A\n\n## Notes\n## users\nB", 9),
        ("assistant", "C", 15),
    ]


def test_placeholders_are_the_names_that_a_template_needs_from_outside() -> None:
    text = "## system\n{% set x = 1 %}{{ x }}{{ case.amount }}\n## user\n{% for i in items %}{{ i | fenced }}{{ loop.index }}{% endfor %}{{ choices }}"
    prompt = load_prompt(text, None)

    assert placeholders(prompt) == {"case", "items"}
    assert prompt.uses_choices


def test_a_template_sees_no_functions_of_jinja() -> None:
    assert placeholders(load_prompt("{{ range(3) }}{{ dict }}", None)) == {"range", "dict"}


WRONG = {
    "unknown field": ("---\nmodle: x\n---\nHi", "unknown field 'modle' in the front matter; did you mean 'model'?"),
    "unknown field unlike any": (
        "---\ncolour: x\n---\nHi",
        "unknown field 'colour'.*; there are version, model, max_tok",
    ),
    "never closed": ("---\nversion: 1\nHi", "line 1: the front matter is never closed"),
    "not yaml": ("---\nversion: 1\nmodel: [a\n---\nHi", "line 3: "),
    "a list": ("---\n- a\n---\nHi", "must be lines of 'name: value'"),
    "version of another type": ("---\nversion: [1]\n---\nHi", "version must be a number or a text"),
    "model of another type": ("---\nmodel: 5\n---\nHi", "model must be a text"),
    "no tokens": ("---\nmax_tokens: 0\n---\nHi", "max_tokens must be a whole number above 0"),
    "tokens as a text": ("---\nmax_tokens: many\n---\nHi", "max_tokens must be a whole number above 0"),
    "syntax": ("---\nversion: 1\n---\nHi\n{{ a", "line 5: unexpected end of template"),
    "syntax in a later block": ("## system\na\n\n## user\n\nb\n{% if x %}", "line 7: "),
    "unknown filter": ("a\n\n{{ b | fence }}", "line 3: No filter named 'fence'"),
    "text above the roles": ("Hello\n## user\nHi", "line 1: there is text above the first line '## user'"),
    "include": ("{% include 'other.md' %}", "can't include or extend another file"),
    "empty": ("\n \n", "is empty"),
    "only marks": ("## user\n\n## system\n", "is empty"),
    "not utf-8": (b"caf\xe9", r"is not UTF-8 \(byte 3\)"),
}


@pytest.mark.parametrize(("content", "words"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_said_in_one_line(written: Written, content: str | bytes, words: str) -> None:
    with pytest.raises(PromptProblem, match=f"^prompt refund/risk.md.*{words}") as caught:
        written(content)

    assert "\n" not in str(caught.value)


def test_a_missing_file_names_the_folder_and_the_nearest_name(written: Written, tmp_path: Path) -> None:
    written("Hi")
    with pytest.raises(PromptProblem) as caught:
        load_prompt(Path("refund/rsk.md"), tmp_path)

    assert str(caught.value) == f"prompt refund/rsk.md: no such file in {tmp_path}; did you mean 'refund/risk.md'?"


def test_without_a_prompts_folder_a_file_cannot_be_found() -> None:
    with pytest.raises(PromptProblem, match="there is no folder 'prompts'"):
        load_prompt(Path("a.md"), None)


def test_a_path_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "prompts"
    root.mkdir()
    secret = tmp_path / "secret.md"
    secret.write_text("Hi")
    (root / "link.md").symlink_to(secret)

    for path in (Path("../secret.md"), Path("a/../../secret.md"), Path("link.md")):
        with pytest.raises(PromptProblem, match="leads out of"):
            load_prompt(path, root)
    with pytest.raises(PromptProblem, match="give the path relative to"):
        load_prompt(secret, root)


def test_the_prompts_folder_is_the_nearest_one_within_the_project(tmp_path: Path) -> None:
    project = tmp_path / "project"
    flows = project / "shop" / "flows"
    flows.mkdir(parents=True)
    (tmp_path / "prompts").mkdir()
    (project / "pyproject.toml").touch()
    assert prompts_root(flows / "refund.py") is None

    (project / "prompts").mkdir()
    assert prompts_root(flows / "refund.py") == project / "prompts"

    (flows / "prompts").mkdir()
    assert prompts_root(flows / "refund.py") == flows / "prompts"


def test_without_a_project_the_search_goes_up_to_the_root(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()

    assert prompts_root(tmp_path / "a" / "b" / "flow.py") == tmp_path / "prompts"
