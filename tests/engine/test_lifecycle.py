"""The lifecycle, cell by cell, against a table that is written here from the rules."""

from typing import Any

import pytest

from agentflow.engine.lifecycle import STATUSES, is_legal, next_status
from agentflow.errors import Conflict

# One line a command: where it is legal, and where it leads.
RULES: dict[str, dict[str, str]] = {
    "claim": {
        "queued": "running",
        "waiting": "running",
        "running": "running",  # from a dead worker
        "cancelling": "cancelling",
        "compensating": "compensating",
    },
    "park": {"running": "waiting"},
    "defer": {"running": "queued"},
    "block": {"running": "queued"},
    "release": {"running": "queued", "cancelling": "cancelling", "compensating": "compensating"},
    "complete": {"running": "completed", "cancelling": "completed", "compensating": "completed"},
    "fail": {"running": "failed", "cancelling": "failed", "compensating": "failed"},
    "cancel": {"queued": "cancelled", "waiting": "cancelled", "running": "cancelling", "cancelling": "cancelling"},
    "stop": {"cancelling": "cancelled", "compensating": "cancelled"},
    "retry": {"failed": "queued"},
    "compensate": {"running": "compensating", "cancelling": "compensating"},
}


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("command", RULES)
def test_every_cell_is_as_the_rules_say(status: Any, command: Any) -> None:
    expected = RULES[command].get(status)
    assert is_legal(status, command) is (expected is not None)
    if expected is not None:
        assert next_status(status, command) == expected
    else:
        with pytest.raises(Conflict, match=f"a run that is {status} cannot {command}"):
            next_status(status, command)


def test_an_ended_run_is_left_by_retry_of_a_failed_one_alone() -> None:
    leaving: set[tuple[str, str]] = {
        (status, command)
        for command in RULES
        for status in ("completed", "failed", "cancelled")
        if is_legal(status, command)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    }
    assert leaving == {("failed", "retry")}
