"""One ticket server of the torture: a service without doors, and callers that write down each answer.

    python -m next.tests.torture.worker NAME LOG FOLDER-OR-URLS

The log has a line for each answer, written when the tickets are handed out: the time in seconds since the machine's
start, the sequence, the shape, the offset, 1 for unprotected tickets, and the ids as runs FIRST:COUNT. In place of the
shape stands `bump` for an answered bump, with the number in place of the offset, or the name of an error. The end of
standard input ends the process.
"""

import asyncio
import json
import os
import random
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import uvloop

from next.databases.engines import lock_embedded, open_database, parse_list
from next.errors import TicketError
from next.service import Options, Service, boot_clock
from next.tickets.request import Block, Call, Shape

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
Answers = asyncio.Queue[TicketError | None]


class Callers:
    """The callers of one service. log: the descriptor of a file. step: the increment."""

    def __init__(self, service: Service, log: int, step: int) -> None:
        self._service, self._log, self._step = service, log, step
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
        answers = Answers()
        while True:
            sequence, shape = random.choice(SEQUENCES), random.choices(list(SHAPES), WEIGHTS)[0]
            done, count = partial(self._take, answers, sequence, shape), random.randint(1, SHAPES[shape])
            self._service.desk.take(Call(sequence, done, answers.put_nowait, count=count, shape=shape))
            error = await answers.get()
            if error is not None:
                self._write(boot_clock(), sequence, type(error).__name__, 0)
            await asyncio.sleep(random.expovariate(1 / THINK))

    def _take(self, answers: Answers, sequence: str, shape: Shape, drawn: int | list[int] | Block) -> None:
        """Write an answer down at the moment when it comes."""
        now = boot_clock()
        ids: Sequence[int] = [drawn] if isinstance(drawn, int) else drawn
        if isinstance(drawn, Block):
            ids = range(drawn.first, drawn.first + drawn.size * drawn.step, drawn.step)
        offset = (ids[0] - 1) % self._step + 1
        lanes = [lane for lane in self._service.desk.lanes if lane.name.row == f"{sequence}/{offset}"]
        is_run = ids[-1] - ids[0] == (len(ids) - 1) * self._step
        runs = f"{ids[0]}:{len(ids)}" if is_run else " ".join(f"{each}:1" for each in ids)
        self._write(now, sequence, shape.value, offset, f"{any(lane.is_unprotected for lane in lanes):d} {runs}")
        self._answers, self._last = self._answers + 1, now
        self._highest[sequence] = max(self._highest[sequence], ids[-1])
        answers.put_nowait(None)

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
    """Run until standard input ends, or a part of the service does."""
    embedded = "://" not in where
    addresses = lock_embedded(Path(where)).addresses if embedded else parse_list(where, None)
    options = Options(name, embedded=embedded)
    service = Service([open_database(address, options.database_timeout) for address in addresses], options)
    callers = Callers(service, os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), len(addresses))
    service.start()
    await callers.create()
    work = [_end(), service.watch(), callers.tell(), callers.bump(), *(callers.call() for _ in range(CALLERS))]
    tasks = [asyncio.create_task(each) for each in work]
    done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    await service.stop()
    for task in done:
        task.result()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
