"""The faults: what happens to databases, links and ticket servers, one fault at a time, each mended at its end."""

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from app.databases.sqlite.folder import FILES
from tests.load import SEQUENCES
from tests.servers import DatabaseServer
from tests.servers_processes import Process, wait_until
from tests.ticketd import QUICK, TicketServer, environment
from tests.torture.stage import ABOVE, DATABASE, SETTLES, Stage

PATH = {"PYTHONPATH": TicketServer.imports_from}
STEPS = [
    "reading the positions 0",
    *(f"stopping the draws {done}" for done in range(3)),
    *("reading the high-water marks 0", "writing the floors 0"),
    *(f"starting the draws {done}" for done in range(3)),
]
"""The steps of a change with three databases listed. The last but one comes after the deciding write."""
_PROGRAM = """
import os, sys
from app.__main__ import main
from app.commands import program
class Signalled(program.Growth):
    def __init__(self, *arguments, say, **others):
        def step(what, done, total):
            if f"{what} {done}" == sys.argv[2]:
                os.kill(os.getpid(), int(sys.argv[1]))
        super().__init__(*arguments, say=step, **others)
program.Growth = Signalled
sys.exit(main(sys.argv[3:]))
"""

Fault = Callable[[int], None]
"""Does something to one of the databases or ticket servers, which the number chooses, and mends it."""


def signalled(number: signal.Signals, step: str) -> list[str]:
    """Return how to start a `ticketd` whose `grow` gets this signal where this step begins; its arguments follow."""
    return [sys.executable, "-c", _PROGRAM, str(number.value), step]


class Faults:
    """Faults on one stage. chance: decides the rest. folder: for copies. pace: a smaller one makes them shorter.

    steady: faults after which no data has gone back. backwards: the others; guarantee 1 holds if no `/healthz` warns
    when such a fault begins.
    """

    def __init__(self, stage: Stage, chance: random.Random, folder: Path, pace: float = 1.0) -> None:
        self._stage, self._chance, self._folder, self._pace = stage, chance, folder, pace
        self.steady: list[Fault] = [self.end_server, self.stop_server]
        self.backwards: list[Fault] = [self.restore_file]
        if stage.databases:
            self.steady += [self.kill_database, self.freeze_database, self.break_link, self.break_link]
            self.backwards = [self.restore, self.restore_unseen, self.restore_forgotten, self.empty]
            self.backwards.append(self.remove_counter)

    def _pause(self, longest: float) -> None:
        time.sleep(self._chance.uniform(0.1, longest) * self._pace)

    def _database(self, number: int) -> DatabaseServer:
        return self._stage.databases[number % len(self._stage.databases)]

    def _stand_still(self, process: Process, longest: float) -> None:
        process.freeze()
        self._pause(longest)
        process.thaw()

    def kill_database(self, number: int) -> None:
        """Kill a database, and start it. Sometimes copy its data."""
        database = self._database(number)
        database.kill()
        self._pause(3)
        copy = self._copy_of(database)
        if not copy.exists() or self._chance.random() < 0.2:
            shutil.rmtree(copy, ignore_errors=True)
            database.copy_data(copy)
        database.start()

    def _copy_of(self, database: DatabaseServer) -> Path:
        return self._folder / f"copy of {database.port}"

    def freeze_database(self, number: int) -> None:
        """Stop every process of a database for some seconds."""
        self._stand_still(self._database(number), 8)

    def restore(self, number: int, *, forgets: bool = False) -> None:
        """Put an older copy of a database in its place. forgets: while the ticket servers start anew."""
        database = self._database(number)
        if not self._copy_of(database).exists():
            self.kill_database(number)
            self._pause(5)
        database.kill()
        database.restore_data(self._copy_of(database))
        for server in self._stage.servers if forgets else ():
            server.kill()
            server.start()
        self._pause(2)
        database.start()

    def restore_forgotten(self, number: int) -> None:
        """Put an older copy of a database in its place, for ticket servers that remember nothing of the data before."""
        self.restore(number, forgets=True)

    def restore_unseen(self, number: int) -> None:
        """Put an older copy of a database in its place while a ticket server stands still."""
        server = self._chance.choice(self._stage.servers)
        server.freeze()
        self.restore(number)
        self._pause(4)
        server.thaw()

    def empty(self, number: int) -> None:
        """Put an empty database in place of one."""
        database = self._database(number)
        database.kill()
        database.wipe()
        self._pause(2)
        database.start()
        database.create_database(DATABASE)

    def remove_counter(self, number: int) -> None:
        """Remove one sequence from one database, or let its counter begin again."""
        database, sequence = self._database(number), self._chance.choice(SEQUENCES)
        remove, begin = f"DROP TABLE `{sequence}`", f"TRUNCATE TABLE `{sequence}`"
        if database.engine == "postgresql":
            remove = f"DELETE FROM ticket_sequences WHERE sequence = '{sequence}'"
            begin = f"{remove}; INSERT INTO ticket_sequences (sequence, id, bits) VALUES ('{sequence}', 0, 64)"
        if database.engine == "redis":
            remove, begin = f"HDEL {{tickets}}:sequences {sequence}", f"HSET {{tickets}}:sequences {sequence} 0"
        database.execute(self._chance.choice([remove, begin]), DATABASE)

    def break_link(self, number: int) -> None:
        """Cut the link of one ticket server to one database, or hold back what they send each other."""
        link = self._chance.choice(self._stage.links[number % len(self._stage.links)])
        self._chance.choice([link.cut, link.freeze])()
        self._pause(8)
        link.heal()

    def end_server(self, number: int) -> None:
        """Kill a ticket server, or end it cleanly, and start it again."""
        server = self._stage.servers[number % len(self._stage.servers)]
        if self._chance.random() < 0.5:
            server.kill()
        elif status := server.stop():
            raise RuntimeError(f"{server!r} ended with status {status}")
        self._pause(2)
        server.start()

    def stop_server(self, number: int) -> None:
        """Let a ticket server stand still for some seconds."""
        self._stand_still(self._stage.servers[number % len(self._stage.servers)], 12)

    def grow(self, number: int) -> None:
        """Begin to take the last database out of the ring, or into it; something else happens at a step of that.

        Mostly `ticketd grow` is killed then. Otherwise it goes on, perhaps so late that the servers took it back.
        """
        last = self._stage.servers[0].health()["databases"][-1]
        increment = len(self._stage.databases) - (ABOVE not in (last["last_error"] or ""))
        databases = " ".join(each.url(DATABASE) for each in self._stage.databases)
        meanwhile = self._chance.choice([self.kill_database, self.end_server, self._wait, self._wait])
        with closing(Process(Path(tempfile.mkdtemp(prefix="ticketd-")))) as run:
            command = [*signalled(signal.SIGSTOP, self._chance.choice(STEPS)), "grow", "--increment"]
            run.launch([*command, str(increment)], environment(databases=databases, **QUICK) | PATH)
            look = os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT
            wait_until(lambda: os.waitid(os.P_PID, run.pid, look) is not None, SETTLES, "`ticketd grow` to stand still")
            meanwhile(number)
            if self._chance.random() < 0.3:
                run.thaw()
                run.wait()

    def _wait(self, _number: int) -> None:
        self._pause(8)

    def restore_file(self, _number: int) -> None:
        """Kill the server of the embedded pair, and copy one file with its journal, or put the copy in its place."""
        (server,), name = self._stage.servers, self._chance.choice(FILES)
        source, target = Path(str(server.settings["data_dir"])), self._folder / name
        server.kill()
        if target.exists():
            source, target = target, source
        target.mkdir(exist_ok=True)
        for old in target.glob(f"{name}*"):
            old.unlink()
        for each in source.glob(f"{name}*"):
            shutil.copy2(each, target)
        server.start()
