"""The clients of a program: one per loop and endpoint, and clear words where one can't be made."""

import asyncio
import subprocess
import sys
from dataclasses import replace

import pytest

from agentflow.errors import ConfigurationError
from agentflow.llm.client import ModelRequest
from agentflow.llm.pool import ModelClients
from agentflow.model.values import Model, Secret
from agentflow.testing.scripted import ScriptedModel, reply
from tests.llm.asking import MESSAGES, MODEL, completed


async def test_models_of_one_endpoint_share_a_client(pool: ModelClients) -> None:
    first = pool.client(MODEL)

    assert pool.client(replace(MODEL, name="other")) is first
    assert pool.client(replace(MODEL, api_key="another-key")) is not first
    assert pool.client(replace(MODEL, base_url="http://elsewhere.test/v1")) is not first


def test_each_event_loop_has_its_own_client() -> None:
    pool = ModelClients()

    async def once() -> object:
        async with pool:
            assert (await completed(pool, [reply(text="fine")])).text == "fine"
            return pool.client(MODEL)

    assert asyncio.run(once()) is not asyncio.run(once())


def test_clients_of_a_loop_that_is_gone_are_forgotten() -> None:
    pool = ModelClients()

    async def once() -> None:
        pool.client(MODEL)

    for _ in range(3):
        asyncio.run(once())
    assert len(pool._clients) == 1


async def test_a_closed_pool_makes_new_clients(pool: ModelClients) -> None:
    first = pool.client(MODEL)
    await pool.close()
    await pool.close()

    assert pool.client(MODEL) is not first
    assert (await completed(pool, [reply(text="fine")])).text == "fine"


async def test_key_and_address_come_from_the_variables_of_the_client(
    pool: ModelClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-variable")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://variable.test/v1")
    with ScriptedModel([reply(text="fine")]) as script:
        await pool.client(Model("m")).complete(ModelRequest("m", MESSAGES))

    assert script.requests[0].url == "http://variable.test/v1/chat/completions"
    assert script.requests[0].headers["authorization"] == "Bearer from-variable"


async def test_a_secret_is_revealed_at_use(pool: ModelClients, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_KEY", "from-secret")
    with ScriptedModel([reply(text="fine")]) as script:
        await pool.client(replace(MODEL, api_key=Secret("env:SHOP_KEY"))).complete(ModelRequest("m", MESSAGES))

    assert script.requests[0].headers["authorization"] == "Bearer from-secret"


@pytest.mark.parametrize("value", [None, ""])
async def test_no_key_is_one_clear_line_that_says_how_to_mend_it(
    pool: ModelClients, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    if value is not None:
        monkeypatch.setenv("OPENAI_API_KEY", value)
    with pytest.raises(ConfigurationError, match=r"'gpt-x': there is no API key; set the environment.*OPENAI_API_KEY"):
        pool.client(Model("gpt-x"))


@pytest.mark.parametrize("key", ["sk-abc\n", "sk abc", "“sk-abc”"])
async def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(pool: ModelClients, key: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        pool.client(Model("m", api_key=key))

    assert "abc" not in str(caught.value)


@pytest.mark.parametrize("address", ["localhost:8000/v1", "ftp://x/v1", "http://", "http://[bad/v1"])
async def test_an_address_that_is_none_is_refused(pool: ModelClients, address: str) -> None:
    with pytest.raises(ConfigurationError, match="base_url"):
        pool.client(Model("m", api_key="test", base_url=address))


def test_importing_the_layer_loads_no_heavy_package() -> None:
    code = (
        "import sys, agentflow.llm.choice, agentflow.llm.pool, agentflow.llm.chat, agentflow.llm.prompts, "
        "agentflow.model.schema, agentflow.testing.scripted, agentflow.model.prompts;"
        "print([name for name in ('openai', 'httpx', 'httpx2', 'jinja2', 'yaml', 'respx') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
