import asyncio
import socket
from contextlib import suppress
from pathlib import Path

import pytest

LOOPBACK = ("127.0.0.1", 9)


def test_a_connection_fails_the_test_even_where_every_exception_is_handled() -> None:
    with pytest.raises(pytest.fail.Exception, match="connected to"):
        connect_handling_every_exception()


def connect_handling_every_exception() -> None:
    with socket.socket() as sock, suppress(Exception):
        sock.connect(LOOPBACK)


def test_a_connection_that_reports_by_number_is_refused_too() -> None:
    with pytest.raises(pytest.fail.Exception, match="connected to"), socket.socket() as sock:
        sock.connect_ex(LOOPBACK)


async def test_asyncio_cannot_connect_either() -> None:
    with pytest.raises(pytest.fail.Exception, match="connected to"):
        await asyncio.open_connection(*LOOPBACK)


async def test_a_host_is_not_looked_up() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"looked up the host 'llm\.test'"):
        await asyncio.open_connection("llm.test", 443)


def test_a_unix_socket_of_this_machine_is_open(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(str(tmp_path / "s"))
        server.listen()
        client.connect(str(tmp_path / "s"))
        client.send(b"x")
        accepted, _ = server.accept()
        with accepted:
            assert accepted.recv(1) == b"x"
