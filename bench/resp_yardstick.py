"""What the Redis protocol costs without any ticket: uvloop and hiredis, and always the same integer."""

import asyncio
import sys

import hiredis
import uvloop


class Constant(asyncio.Protocol):
    """Answers each command with 7; those of one read in one write."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        count = 0
        while self._reader.gets() is not False:
            count += 1
        self._transport.write(b":7\r\n" * count)


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Constant, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
