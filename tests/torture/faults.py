"""The faults: what happens to databases, links and ticket servers, one fault at a time, each mended at its end."""

import asyncio
import random
import shutil
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from app.databases.sqlite.folder import FILES
from app.service import boot_clock
from tests.servers import DatabaseServer
from tests.torture.stage import DATABASE, Stage, Worker
from tests.torture.worker import SEQUENCES

Fault = Callable[[], Awaitable[str]]
"""Does something, mends it, and returns what it was."""


class Faults:
    """Faults on one stage. chance: decides everything.

    steady: faults after which no data has gone back. backwards: the others; guarantee 1 holds if no `/healthz` warns
    when such a fault begins. replacing: those after which a database is in another life.
    """

    def __init__(self, stage: Stage, chance: random.Random) -> None:
        self._stage, self._chance = stage, chance
        self._copies: dict[DatabaseServer, tuple[Path, float]] = {}
        self.steady: list[Fault] = [self.end_worker, self.stop_worker]
        self.backwards: list[Fault] = [self.restore_file]
        self.replacing: list[Fault] = [self.restore, self.restore_unseen, self.empty]
        if stage.servers:
            self.steady += [self.kill_database, self.freeze_database, self.break_link, self.break_link]
            self.backwards = [*self.replacing, self.remove_counter]

    async def _pause(self, longest: float) -> str:
        seconds = self._chance.uniform(0.1, longest)
        await asyncio.sleep(seconds)
        return f"for {seconds:.1f} s"

    async def _for_a_while(self, begin: Callable[[], None], end: Callable[[], None], longest: float, words: str) -> str:
        begin()
        pause = await self._pause(longest)
        end()
        return f"{words} {pause}"

    def _server(self) -> tuple[DatabaseServer, str]:
        number = self._chance.randrange(len(self._stage.servers))
        return self._stage.servers[number], f"database {number + 1}"

    async def kill_database(self) -> str:
        """Kill a database, and start it. Sometimes copy its data."""
        return await self._kill(*self._server())

    async def _kill(self, server: DatabaseServer, name: str) -> str:
        await asyncio.to_thread(server.kill)
        pause = await self._pause(3)
        if server not in self._copies or self._chance.random() < 0.2:
            to = self._stage.folder / f"copy of {name}"
            shutil.rmtree(to, ignore_errors=True)
            await asyncio.to_thread(server.copy_data, to)
            self._copies[server] = to, boot_clock()
        await asyncio.to_thread(self._stage.start, server)
        return f"{name} {pause}"

    async def freeze_database(self) -> str:
        """Stop every process of a database for some seconds."""
        server, name = self._server()
        return await self._for_a_while(server.freeze, server.thaw, 8, name)

    async def restore(self) -> str:
        """Put an older copy of a database in its place."""
        server, name = self._server()
        if server not in self._copies:
            await self._kill(server, name)
            await self._pause(5)
        copy, copied = self._copies[server]
        words = f"{name} as it was {boot_clock() - copied:.0f} s before"
        return words + await self._replace(server, partial(server.restore_data, copy), fresh=False)

    async def restore_unseen(self) -> str:
        """Put an older copy of a database in its place while a ticket server stands still."""
        worker = self._worker()
        worker.send(signal.SIGSTOP)
        words = f"{await self.restore()}; then {worker.name} stood still {await self._pause(4)}"
        worker.send(signal.SIGCONT)
        return words

    async def empty(self) -> str:
        """Put an empty database in place of one."""
        server, name = self._server()
        return name + await self._replace(server, server.wipe, fresh=True)

    async def _replace(self, server: DatabaseServer, put: Callable[[], None], *, fresh: bool) -> str:
        """Replace the data of a database; half of the time by servers that remember nothing of the data before."""
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(put)
        forgets = self._chance.random() < 0.5
        for worker in self._stage.workers if forgets else ():
            await worker.end()
            await worker.start()
            await self._stage.wait(partial(worker.serves, boot_clock()), 30)
        pause = await self._pause(2)
        await asyncio.to_thread(self._stage.start, server, fresh=fresh)
        return f"{', all ticket servers restarted' if forgets else ''}, away {pause}"

    async def remove_counter(self) -> str:
        """Remove one sequence from one database, or let its counter begin again."""
        (server, name), sequence = self._server(), self._chance.choice(SEQUENCES)
        remove, begin = f"DROP TABLE `{sequence}`", f"TRUNCATE TABLE `{sequence}`"
        if server.engine == "postgresql":
            remove = f"DELETE FROM ticket_sequences WHERE sequence = '{sequence}'"
            begin = f"{remove}; INSERT INTO ticket_sequences (sequence, id, bits) VALUES ('{sequence}', 0, 64)"
        statement = self._chance.choice([remove, begin])
        await asyncio.to_thread(server.execute, statement, DATABASE)
        return f"{name}: {statement}"

    def _worker(self) -> Worker:
        return self._chance.choice(self._stage.workers)

    async def break_link(self) -> str:
        """Cut the link of one ticket server to one database, or hold back what they send each other."""
        worker = self._worker()
        link = self._chance.choice(worker.links)
        how = self._chance.choice([link.cut, link.freeze])
        words = f"{how.__name__} {worker.name} to database {worker.links.index(link) + 1}"
        return await self._for_a_while(how, link.heal, 8, words)

    async def end_worker(self) -> str:
        """Kill a ticket server, or end it cleanly, and start another one in its place."""
        worker, is_clean = self._worker(), self._chance.random() < 0.3
        await worker.end(clean=is_clean)
        pause = await self._pause(2)
        await worker.start()
        return f"{worker.name}{' cleanly' if is_clean else ''}, away {pause}"

    async def stop_worker(self) -> str:
        """Let a ticket server stand still for some seconds."""
        worker = self._worker()
        stop, go_on = (partial(worker.send, number) for number in (signal.SIGSTOP, signal.SIGCONT))
        return await self._for_a_while(stop, go_on, 12, worker.name)

    async def restore_file(self) -> str:
        """Kill the server of the embedded pair, and copy one file with its journal, or put the copy in its place."""
        worker, name = self._worker(), self._chance.choice(FILES)
        source, target, what = self._stage.folder / "pair", self._stage.folder / name, "copied"
        await worker.end()
        if target.exists():
            source, target, what = target, source, "put back"
        target.mkdir(exist_ok=True)
        for old in target.glob(f"{name}*"):
            old.unlink()
        for each in source.glob(f"{name}*"):
            shutil.copy2(each, target)
        await worker.start()
        return f"{name} {what}"
