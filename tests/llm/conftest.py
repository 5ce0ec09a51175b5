"""A pool of clients for each test, closed after it; no variable of the environment speaks into a test."""

from collections.abc import AsyncGenerator

import pytest

from agentflow.llm.pool import ModelClients


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def pool() -> AsyncGenerator[ModelClients, None]:
    async with ModelClients() as clients:
        yield clients
