"""One ticket server of the torture, whole, and callers that ask it over HTTP and write down each answer.

    python -m tests.torture.worker NAME LOG FOLDER-OR-URLS

Each caller has a connection of its own to its server, in the same process: so what stands still stands still together.

The log has a line for each answer, written when the tickets are handed out: the time in seconds since the machine's
start, the sequence, the shape, the offset, 1 for unprotected tickets, and the ids as runs FIRST:COUNT. In place of the
shape stands `bump` for an answered bump, with the number in place of the offset, or the name of an error. The end of
standard input ends the process.
"""

import asyncio
import json
import os
import random
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvloop

from app.access import Access
from app.connections import Connections
from app.databases.engines import lock_embedded, open_database, parse_list
from app.errors import TicketError
from app.http.api import make_api
from app.http.fast import HttpServer
from app.operations.report import Report
from app.operations.tally import Tally
from app.service import Options, Service, boot_clock
from app.tickets.request import Block, Request, Shape
from app.version import VERSION

SEQUENCES = ("photos", "accounts", "groups")
CALLERS = 32
THINK = 0.02
"""Mean seconds between an answer and the caller's next request."""
STATUS = 0.2
"""Seconds between two lines of JSON on standard output, which say how the server is."""
BUMP_SECONDS = 20.0
"""Mean seconds between two bumps of one server, and seconds for which it asks for one."""
SHAPES, WEIGHTS = {Shape.SINGLE: 1, Shape.LIST: 60, Shape.BLOCK: 2_000}, (70, 20, 10)
"""The most tickets of a request of each shape, and how many of 100 requests have the shape."""
PATHS = {Shape.SINGLE: "/ticket/{}", Shape.LIST: "/ticket/{}?count={}", Shape.BLOCK: "/block/{}?size={}"}


class Callers:
    """The callers of one server. service: of that server. port: where it speaks HTTP. log: the descriptor of a file.

    step: the increment.
    """

    def __init__(self, service: Service, port: int, log: int, step: int) -> None:
        self._service, self._port, self._log, self._step = service, port, log, step
        self._unprotected: dict[tuple[str, int], bool] = {}
        """Whether the tickets were unprotected when they were handed out, by sequence and first ticket."""
        self._take, service.desk.take = service.desk.take, self._note  # type: ignore[method-assign]
        self._answers, self._last = 0, 0.0
        self._highest = dict.fromkeys(SEQUENCES, 0)

    async def create(self) -> None:
        """Make the sequences. Several servers do that at the same time."""
        for sequence in SEQUENCES:
            while True:
                with suppress(TicketError):
                    await self._service.maker.create(sequence, None, {})
                    break
                await asyncio.sleep(STATUS)

    async def call(self) -> None:
        """Ask for tickets again and again."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        while True:
            sequence, shape = random.choice(SEQUENCES), random.choices(list(SHAPES), WEIGHTS)[0]
            path = PATHS[shape].format(sequence, random.randint(1, SHAPES[shape]))
            writer.write(f"GET {path} HTTP/1.1\r\nhost: tickets\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
            self._answered(sequence, shape, json.loads(await reader.readexactly(length)))
            await asyncio.sleep(random.expovariate(1 / THINK))

    def _note(self, request: Request) -> None:
        """Pass a request on to the desk, and note whether its tickets are unprotected."""
        done = request.done

        def noted(answer: int | list[int] | Block) -> None:
            first = answer if isinstance(answer, int) else answer[0]
            row = f"{request.sequence}/{self._offset(first)}"
            lanes = [lane for lane in self._service.desk.lanes if lane.name.row == row]
            self._unprotected[request.sequence, first] = any(lane.is_unprotected for lane in lanes)
            done(answer)

        request.done = noted  # type: ignore[method-assign]
        self._take(request)

    def _offset(self, ticket: int) -> int:
        return (ticket - 1) % self._step + 1

    def _answered(self, sequence: str, shape: Shape, body: dict[str, Any]) -> None:
        """Write an answer down at the moment when it comes."""
        now = boot_clock()
        if "code" in body:
            self._write(now, sequence, body["code"], 0)
            return
        ids: Sequence[int] = body.get("ids") or [body.get("id")]
        if shape is Shape.BLOCK:
            ids = range(body["first"], body["first"] + body["size"] * body["step"], body["step"])
        unprotected = self._unprotected.pop((sequence, ids[0]))
        is_run = ids[-1] - ids[0] == (len(ids) - 1) * self._step
        runs = f"{ids[0]}:{len(ids)}" if is_run else " ".join(f"{each}:1" for each in ids)
        self._write(now, sequence, shape.value, self._offset(ids[0]), f"{unprotected:d} {runs}")
        self._answers, self._last = self._answers + 1, now
        self._highest[sequence] = max(self._highest[sequence], ids[-1])

    def _write(self, time: float, sequence: str, shape: str, number: int, rest: str = "") -> None:
        os.write(self._log, f"{time:.6f} {sequence} {shape} {number} {rest}\n".encode())

    async def bump(self) -> None:
        """Bump a sequence now and then. Each time ask again until that is confirmed, or for BUMP_SECONDS."""
        while True:
            await asyncio.sleep(random.expovariate(1 / BUMP_SECONDS))
            sequence, until = random.choice(SEQUENCES), boot_clock() + BUMP_SECONDS
            above, is_confirmed = self._highest[sequence] + random.randint(1, 20_000), False
            while not is_confirmed and boot_clock() < until:
                with suppress(TicketError):
                    await self._service.bumps.bump(sequence, above, force=False, deadline=boot_clock() + 2.0)
                    self._write(boot_clock(), sequence, "bump", above)
                    is_confirmed = True
                await asyncio.sleep(STATUS)

    async def tell(self) -> None:
        """Say again and again how this server is."""
        members, levels = self._service.sight.members, self._service.levels
        while True:
            said = {"time": boot_clock(), "answers": self._answers, "last": self._last, "warnings": levels.warnings}
            said |= {
                "lives": [each.life for each in members],
                "why": [f"{each.status} {each.reason}" for each in members],
            }
            print(json.dumps(said), flush=True)
            await asyncio.sleep(STATUS)


async def _end() -> None:
    """Return at the end of standard input."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()


async def main(name: str, log: str, where: str) -> None:
    """Run until standard input ends, or a part of the server does."""
    embedded = "://" not in where
    addresses = lock_embedded(Path(where)).addresses if embedded else parse_list(where, None)
    options = Options(name, embedded=embedded)
    service = Service([open_database(address, options.database_timeout) for address in addresses], options)
    access, tally = Access(), Tally()
    app = make_api(service, Report(service, tally=tally, version=VERSION), access, tally, None, is_local=True)
    http = HttpServer(app, service.desk, access, tally, Connections(1000, tally), None, grace=2, idle=620)
    listening = socket.create_server(("127.0.0.1", 0))
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    callers = Callers(service, listening.getsockname()[1], file, len(addresses))
    service.start()
    await callers.create()
    work = [_end(), service.watch(), http.serve([listening]), callers.tell(), callers.bump()]
    tasks = [asyncio.create_task(each) for each in (*work, *(callers.call() for _ in range(CALLERS)))]
    done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    await service.stop()
    for task in done:
        task.result()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
