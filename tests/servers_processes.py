"""Processes, ports and waiting, for the programs that tests start."""

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

DEADLINE = 60.0
"""Seconds that a program has to start or to stop. On a busy machine it takes many of them."""
_GUARD = r"""
read -r _
kill -KILL "$0" $(cat "/proc/$0/task/$0/children")
rm -rf "$1"
"""
_given: set[int] = set()


class Process:
    """A program that a test starts, freezes and kills, as often as the test likes. As a context manager it runs.

    home: a directory for its log and its files; `close` removes it, and so does the end of the test run.
    """

    ending = signal.SIGTERM
    """The signal that ends the program cleanly."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} in {self.home}, {'running' if self.running else 'not running'}>"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def log(self) -> str:
        """Everything that the program has written, on both streams."""
        file = self.home / "log"
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    @property
    def pid(self) -> int:
        """The number of the program's first process."""
        assert self._process is not None, f"{self!r} was never started"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process exists. A frozen program runs, too."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the program, and return when it answers. A program of its own kind says here how."""
        raise NotImplementedError

    def launch(self, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> None:
        """Start a command in the home. Until `close`, a guard ends it if the test run ends."""
        assert not self.running, f"{self!r} is started twice"
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self.home,
                start_new_session=True,
            )
        self._end_guard()  # there still is one if the program ended by itself
        self._guard = guard(self._process.pid, self.home)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Return as soon as the condition holds. Raises RuntimeError with the log if the program ends before."""

        def holds() -> bool:
            if not self.running:
                raise RuntimeError(f"{self!r} has ended with status {self.wait()}:\n{self.log[-3000:]}")
            return condition()

        wait_until(holds, DEADLINE, f"{self!r} {what}")

    def kill(self) -> None:
        """End all processes of the program with SIGKILL at the same moment, as a power cut does. Waits for the end."""
        if self.running:
            self.freeze()  # a frozen program starts no further process
            processes = _family(self.pid)
            for pid in reversed(processes):
                send(pid, signal.SIGKILL)
            self.wait()
            wait_until(lambda: not any(_states(pid) for pid in processes), DEADLINE, f"the end of {self!r}")
        self._end_guard()

    def stop(self) -> int:
        """End the program cleanly, and return its exit status. Raises subprocess.TimeoutExpired after the deadline."""
        if self.running:
            self.thaw()
            send(self.pid, self.ending)
        return self.wait()

    def wait(self) -> int:
        """Return the exit status, once the program has ended. Raises subprocess.TimeoutExpired after the deadline."""
        assert self._process is not None
        status = self._process.wait(DEADLINE)
        self._end_guard()
        return status

    def freeze(self) -> None:
        """Stop all processes with SIGSTOP. The kernel still accepts connections; nothing answers them."""
        self._freeze([self.pid])  # the first process starts the others, so it stops first
        self._freeze(_family(self.pid))

    def thaw(self) -> None:
        """Let a frozen program go on (SIGCONT)."""
        for pid in reversed(_family(self.pid)):
            send(pid, signal.SIGCONT)

    def close(self) -> None:
        """Kill the program and remove its files."""
        self.kill()
        shutil.rmtree(self.home, ignore_errors=True)

    def _freeze(self, processes: list[int]) -> None:
        for pid in processes:
            send(pid, signal.SIGSTOP)
        # a thread that is writing to the disk stops when it has written
        wait_until(lambda: all(_states(pid) <= {"T", "t"} for pid in processes), DEADLINE, f"{self!r} to stand still")

    def _end_guard(self) -> None:
        if self._guard is not None:
            end_guard(self._guard)
            self._guard = None


@contextlib.contextmanager
def running(*processes: Process) -> Iterator[None]:
    """Start programs at the same time, and go on when all of them answer. Close them at the end."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor() as pool:
        for process in processes:
            stack.callback(process.close)
        list(pool.map(lambda process: process.start(), processes))
        yield


def guard(pid: int, home: Path) -> subprocess.Popen[bytes]:
    """Start a shell that waits for the end of the test run, however the run ends.

    Then it kills a process with its children, because a frozen child does not notice that, and removes its files.
    """
    return subprocess.Popen(
        ["/bin/sh", "-c", _GUARD, str(pid), home],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def end_guard(shell: subprocess.Popen[bytes]) -> None:
    """End a shell of `guard` before it does anything."""
    shell.kill()
    shell.wait()
    if shell.stdin is not None:
        shell.stdin.close()


def _family(pid: int) -> list[int]:
    """The process, then its children. Each child of PostgreSQL leads a process group of its own."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split())]
    return [pid]


def _states(pid: int) -> set[str]:
    """The states of a process's threads, as /proc names them; none if the process has ended."""
    found = set()
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            # behind the process's name, which may contain anything
            found.add(stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0])
    return found - {"Z", "X"}


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process, unless the process has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Return as soon as the condition holds. Raises TimeoutError, with `what` in it, after so many seconds."""
    deadline = time.monotonic() + seconds
    pause = 0.01
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s for {what}")
        time.sleep(pause)
        pause = min(pause * 1.3, 0.2)


def free_port() -> int:
    """A free port of 127.0.0.1 that this process has not given out before.

    The kernel takes the ports of outgoing connections from a range, and this port lies below that range. Otherwise a
    client could take the port of a killed server, or connect to itself there.
    """
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    for _ in range(1000):
        port = random.randrange(10_000, lowest if lowest > 12_000 else 32_768)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if port not in _given:
                probe.bind(("127.0.0.1", port))
                _given.add(port)
                return port
    raise RuntimeError("found no free port on 127.0.0.1")
