"""Servers under attack: how long /livez takes beside it, how much memory and processor time it costs."""

import json
import math
import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.harness.processes import free_port, new_directory, remove_directory, wait_until
from tests.harness.ticketd import PATIENT, TicketServer
from tests.long.costly.case import SETTINGS, TOKEN, Case

ASKS = 100
"""How often /livez is asked beside an attack."""
ASK_SECONDS = 0.01
"""The least time from one question to the next."""
LATEST_SECONDS = 5.0
"""After this time a question counts as answered, and further ones are not asked."""
MAY_WAIT_SECONDS = 0.1
MAY_GROW = 64 << 20
"""Bytes."""
SEQUENCES = 3_000
TICK = 1 / os.sysconf("SC_CLK_TCK")
LIVEZ = b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


@dataclass(frozen=True)
class Reading:
    """The result of one attack.

    Args:
        waits: The 99th of a hundred waits for /livez, in seconds, without the time for which the server or who
            asks it could have run and the machine ran other programs.
        idle: The same of an idle server, asked in turns with the first.
        whole: The 99th of a hundred waits, with that time.
        grown: Bytes of memory above the level after the warm-up.
        sent: Bytes that the attack sent.
        processor: Seconds of processor time that the server used.
        wrong: What must not have happened, in words; empty if nothing did.
    """

    waits: float
    idle: float
    grown: int
    sent: int
    processor: float
    whole: float
    wrong: str = ""

    @property
    def breaks_a_bound(self) -> bool:
        return bool(self.wrong) or self.waits > self.idle + MAY_WAIT_SECONDS or self.grown > MAY_GROW

    @property
    def score(self) -> float:
        """How expensive it is; 1 where a bound is reached."""
        per_byte = self.processor / max(1, self.sent) * 1e6
        wait, memory = (self.waits - self.idle) / MAY_WAIT_SECONDS, self.grown / MAY_GROW
        return max(0.0, wait) + 0.5 * max(0.0, memory) + 0.02 * math.log10(1 + per_byte)

    def __str__(self) -> str:
        waits, idle, whole = (seconds * 1e3 for seconds in (self.waits, self.idle, self.whole))
        return (
            f"livez {waits:6.1f} ms (idle {idle:5.1f}, whole {whole:6.1f}), {self.grown / 2**20:+6.1f} MiB, "
            f"{self.sent / 2**20:8.3f} MiB sent, {self.processor / max(1, self.sent) * 1e6:9.3f} us of CPU a byte"
            + (f"; {self.wrong}" if self.wrong else "")
        )


class Attacker:
    """The process that sends."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.long.costly.attacker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self, port: int, case: Case) -> None:
        """Send the case until `end`."""
        self._tell(f"{port} {case.to_json()}")

    def end(self) -> tuple[int, int, int, int]:
        """Stop; returns the bytes sent and received, the connections opened, and the answers that were 500."""
        self._tell("")
        assert self._process.stdout is not None
        sent, received, opened, broken = json.loads(self._process.stdout.readline())
        return sent, received, opened, broken

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        with suppress(BrokenPipeError):
            self._process.__exit__(None, None, None)


class Target:
    """A server of one of the `SETTINGS`, with thousands of sequences."""

    def __init__(self, setting: str) -> None:
        self.setting = setting
        self.redis_port = free_port()
        self._data = new_directory("costly-")
        settings = PATIENT | SETTINGS[setting] | {"TICKETS_REDIS_PORT": self.redis_port}
        self.server = TicketServer(settings=settings, data_dir=self._data)
        self._level = 0
        self._seen = 0
        with ExitStack() as stack:
            stack.callback(self.close)
            self.start()
            stack.pop_all()

    def start(self) -> None:
        """Start it and let it become warm."""
        if not (self._data / "odd").exists():
            self.server.start()
            self.server.wait_ready()
            self.server.terminate()
            self._make_sequences()
        self.server.start()
        self.server.wait_ready()
        headers = {"authorization": f"Bearer {TOKEN.decode()}"}
        for path in ("/", "/sequence", "/metrics", "/docs", "/openapi.json", "/healthz", "/ticket/photos"):
            wait_until(lambda of=path: self.server.get(of, headers=headers).status == 200, 20, path)  # type: ignore[misc]
        self._seen = len(self.server.log_text())

    def _make_sequences(self) -> None:
        for path in sorted(self._data.glob("*.sqlite3")):
            with closing(sqlite3.connect(path)) as connection, connection:
                row = connection.execute("SELECT bits, last, created FROM _sequences LIMIT 1").fetchone()
                rows = [(f"s{number}", row[0], 0, row[2]) for number in range(SEQUENCES)]
                connection.executemany("INSERT INTO _sequences (name, bits, last, created) VALUES (?, ?, ?, ?)", rows)
        (self._data / "odd").touch()

    def port_of(self, case: Case) -> int:
        """The port that the case is sent to."""
        return self.redis_port if case.port == "redis" else self.server.port

    def settle(self) -> None:
        """Take the memory that it has now for the level that growth is measured from."""
        self._level = self.memory()

    def memory(self) -> int:
        """Bytes in RAM."""
        pages = Path(f"/proc/{self.server.pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    @property
    def grown(self) -> int:
        return self.memory() - self._level

    @property
    def processor(self) -> float:
        """Seconds of processor time so far."""
        fields = Path(f"/proc/{self.server.pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) * TICK

    def complaint(self) -> str:
        """What is wrong with it after an attack, in words; empty if nothing is."""
        if not self.server.running:
            return f"the server ended with {self.server.returncode}"
        try:
            reply = self.server.get(
                "/ticket/accounts", headers={"authorization": f"Bearer {TOKEN.decode()}"}, timeout=10
            )
        except OSError as error:
            return f"no ticket afterwards: {error!r}"
        except Exception as error:  # httpx has its own
            return f"no ticket afterwards: {error!r}"
        log = self.server.log_text()
        new, self._seen = log[self._seen :], len(log)
        if "Traceback" in new or "unknown error" in new:
            return f"a traceback in the log: {new[-600:]}"
        return "" if reply.status == 200 else f"no ticket afterwards: {reply.status} {reply.text}"

    def close(self) -> None:
        """End it and remove what it wrote."""
        self.server.close()
        remove_directory(self._data)


class Asking:
    """Asks /livez of one server, on one connection and on new ones in turns.

    `waits`: how long each answer took, in seconds, without the time for which the server or this process could have run
    and the machine ran other programs; `whole`: with it.
    """

    def __init__(self, server: TicketServer) -> None:
        self._address = server.address
        self._schedules = Path(f"/proc/{server.pid}/schedstat"), Path("/proc/self/schedstat")
        self._kept: socket.socket | None = None
        self._number = 0
        self.waits: list[float] = []
        self.whole: list[float] = []

    def ask(self) -> None:
        """Ask once and note how long the answer took; LATEST_SECONDS where it did not come."""
        self._number += 1
        began, ready = time.monotonic(), self._ready_seconds()
        try:
            if self._number % 2:
                with socket.create_connection(self._address, timeout=LATEST_SECONDS) as connection:
                    self._exchange(connection)
            else:
                if self._kept is None:
                    self._kept = socket.create_connection(self._address, timeout=LATEST_SECONDS)
                self._exchange(self._kept)
        except OSError:
            self._drop()
            self.whole.append(LATEST_SECONDS)
            self.waits.append(LATEST_SECONDS)
        else:
            whole = time.monotonic() - began
            self.whole.append(whole)
            self.waits.append(max(0.0, whole - (self._ready_seconds() - ready)))

    def _ready_seconds(self) -> float:
        """For how long so far the server's thread and this one were ready to run and did not; 0 where the kernel does
        not say."""
        try:
            return sum(int(path.read_text(encoding="ascii").split()[1]) for path in self._schedules) / 1e9
        except (OSError, IndexError):
            return 0.0

    def _exchange(self, connection: socket.socket) -> None:
        connection.sendall(LIVEZ)
        received = b""
        while b"alive" not in received:
            data = connection.recv(4096)
            if not data:
                raise ConnectionResetError
            received += data

    def _drop(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def close(self) -> None:
        """Close the connection that is kept."""
        self._drop()


def ninety_ninth(waits: Sequence[float]) -> float:
    """The 99th of a hundred waits."""
    return sorted(waits)[math.ceil(len(waits) * 0.99) - 1]


def measure(case: Case, target: Target, idle: Target, attacker: Attacker) -> Reading:
    """Attack, ask both servers steadily meanwhile, and see that the attacked one is well afterwards."""
    asked, asked_idle = Asking(target.server), Asking(idle.server)
    grown = 0
    began, processor = time.monotonic(), target.processor
    attacker.begin(target.port_of(case), case)
    for number in range(ASKS):
        for asking in (asked, asked_idle):
            asking.ask()
        with suppress(OSError, IndexError):
            grown = max(grown, target.grown)
        elapsed = time.monotonic() - began
        if elapsed > LATEST_SECONDS:
            break
        time.sleep(max(0.0, (number + 1) * ASK_SECONDS - elapsed))
    with suppress(OSError):
        processor = target.processor - processor
    sent, _, _, broken = attacker.end()
    wrong = target.complaint() or (f"{broken} answers with 500" if broken else "")
    for asking in (asked, asked_idle):
        asking.close()
    waits, idle_waits, whole = (ninety_ninth(each) for each in (asked.waits, asked_idle.waits, asked.whole))
    return Reading(waits, idle_waits, grown, sent, processor, whole, wrong)


def measure_twice(case: Case, target: Target, idle: Target, attacker: Attacker) -> Reading:
    """What the input comes to; where it breaks a bound on time, which a busy machine does as well, the better of two
    readings."""
    reading = measure(case, target, idle, attacker)
    if reading.breaks_a_bound and not reading.wrong and reading.grown <= MAY_GROW:
        reading = min(reading, measure(case, target, idle, attacker), key=lambda each: each.waits - each.idle)
    return reading


def confirmed(case: Case, attacker: Attacker, times: int = 3) -> Sequence[Reading]:
    """The readings on fresh servers, if each of them breaks a bound; else none."""
    readings = []
    for _ in range(times):
        with closing(Target(case.setting)) as target, closing(Target("plain")) as idle:
            warm(target, attacker)
            readings.append(measure(case, target, idle, attacker))
        if not readings[-1].breaks_a_bound:
            return ()
    return readings


def warm(target: Target, attacker: Attacker, seconds: float = 1.0) -> None:
    """Let forty connections draw for a while, and take the memory after that for the level."""
    unit = b"GET /ticket/photos HTTP/1.1\r\nauthorization: Bearer %b\r\n\r\n" % TOKEN
    attacker.begin(target.server.port, Case("http", target.setting, 40, unit))
    time.sleep(seconds)
    attacker.end()
    target.settle()
