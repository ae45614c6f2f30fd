"""Connecting to a host with several addresses."""

import asyncio
import socket

import pytest

from app.databases import dial


async def test_the_next_address_is_tried_before_the_first_one_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    port, loop = server.sockets[0].getsockname()[1], asyncio.get_running_loop()
    connect, asked = loop.sock_connect, list[str]()

    async def resolve(host: str, *_args: object, **_keywords: object) -> list[dial.Info]:
        asked.append(host)
        if asked != ["db.test"]:
            raise socket.gaierror
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in ("192.0.2.1", "127.0.0.1")]

    async def sock_connect(opened: socket.socket, address: tuple[str, int]) -> None:
        await (asyncio.sleep(3600) if address[0] == "192.0.2.1" else connect(opened, address))

    monkeypatch.setattr(loop, "getaddrinfo", resolve)
    monkeypatch.setattr(loop, "sock_connect", sock_connect)
    for _ in range(2):  # where the name cannot be resolved, the addresses of before serve
        async with asyncio.timeout(5):
            with await dial.dial("db.test", 1, 2.0) as opened:
                assert opened.getpeername()[1] == port
    with pytest.raises(OSError):
        await dial.dial("other.test", 1, 2.0)
    server.close()
    await server.wait_closed()
