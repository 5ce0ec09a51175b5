"""No test reaches a network, not even this machine's own loopback: mocks answer, or the test is wrong."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session", autouse=True)
def no_network() -> Iterator[None]:
    """Refuse every connection but AF_UNIX, which asyncio's self-pipe and helpers on this machine use.

    The refusal is pytest's own failure, a BaseException: code under test that handles connection errors, or any
    Exception, must not take it for a server that is down.
    """
    real_connect, real_connect_ex = socket.socket.connect, socket.socket.connect_ex

    def connect(sock: socket.socket, address: Any) -> None:
        refuse_network(sock, address)
        real_connect(sock, address)

    def connect_ex(sock: socket.socket, address: Any) -> int:
        refuse_network(sock, address)
        return real_connect_ex(sock, address)

    def getaddrinfo(host: Any, *_args: Any, **_options: Any) -> list[Any]:
        pytest.fail(f"a test looked up the host {host!r}; mock the server instead")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", connect)
        patch.setattr(socket.socket, "connect_ex", connect_ex)
        patch.setattr(socket, "getaddrinfo", getaddrinfo)
        yield


def refuse_network(sock: socket.socket, address: Any) -> None:
    if sock.family != socket.AF_UNIX:
        pytest.fail(f"a test connected to {address!r}; mock the server instead")
