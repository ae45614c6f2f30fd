"""Child processes that can be killed and frozen, and that do not outlive the test run.

A guard process holds the other end of a pipe. When the test run ends, however it ends, the pipe closes, and the guard
kills what is still registered and removes its directories and containers.
"""

import atexit
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.harness.preloaded import Forked, is_as_ours, preloaded

_GUARD = """
import os, shutil, signal, socket, sys
children, directories, containers = {}, set(), []
for line in sys.stdin:
    verb, what = line.rstrip("\\n").split(" ", 1)
    if verb == "child":
        try:
            children[what] = os.pidfd_open(int(what))
        except ProcessLookupError:
            pass
    elif verb == "reaped":
        if what in children:
            os.close(children.pop(what))
    elif verb == "directory":
        directories.add(what)
    elif verb == "removed":
        directories.discard(what)
    elif verb == "container":
        containers.append(what.rsplit(" ", 1))
for child in children.values():
    try:
        signal.pidfd_send_signal(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
for directory in directories:
    shutil.rmtree(directory, ignore_errors=True)
for engine, name in containers:
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(engine)
            request = f"DELETE /containers/{name}?force=1&v=1 HTTP/1.0\\r\\nHost: engine\\r\\n\\r\\n"
            connection.sendall(request.encode())
            while connection.recv(4096):
                pass
    except OSError:
        pass
"""


class _Guard:
    """Our side of the guard process; it is started with the first child."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def tell(self, verb: str, what: object) -> None:
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", _GUARD],
                    stdin=subprocess.PIPE,
                    text=True,
                    start_new_session=True,
                )
                atexit.register(self._end)
            assert self._process.stdin is not None
            self._process.stdin.write(f"{verb} {what}\n")
            self._process.stdin.flush()

    def _end(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            self._process.wait(timeout=30)


_guard = _Guard()


class ChildProcess:
    """One program started by the tests. Ended by its own id only, and killed with the test run."""

    def __init__(
        self,
        arguments: Sequence[str | Path],
        *,
        stdout: Path,
        stderr: Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        with stdout.open("ab") as out, stderr.open("ab") as err:
            self._process = self._begun([str(argument) for argument in arguments], out.fileno(), err.fileno(), cwd, env)
        _guard.tell("child", self._process.pid)

    def _begun(
        self, arguments: list[str], stdout: int, stderr: int, cwd: Path | None, env: Mapping[str, str] | None
    ) -> "subprocess.Popen[bytes] | Forked":
        return subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=dict(env) if env is not None else None,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs; minus the signal's number where a signal ended it."""
        code = self._process.poll()
        if code is not None:
            _guard.tell("reaped", self._process.pid)
        return code

    @property
    def running(self) -> bool:
        """True while it has not ended; a frozen process runs."""
        return self.returncode is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens where the process has ended."""
        if self.running:
            self._process.send_signal(number)

    def freeze(self) -> None:
        """SIGSTOP: it keeps its connections and says nothing. Returns when it has really stopped."""
        self.signal(signal.SIGSTOP)
        wait_until(lambda: not self.running or self._states() <= {"T", "t"}, 5, f"process {self.pid} to stop")

    def thaw(self) -> None:
        """SIGCONT."""
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self.signal(signal.SIGKILL)
        self.wait(30)

    def terminate(self, timeout: float = 30) -> int:
        """SIGTERM (after SIGCONT), and wait for the end; killed and a failure where it does not come."""
        self.thaw()
        self.signal(signal.SIGTERM)
        try:
            return self.wait(timeout)
        except TimeoutError:
            self.kill()
            raise

    def wait(self, timeout: float) -> int:
        """Wait for the end by itself; returns the exit status."""
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"process {self.pid} did not end within {timeout} s") from error
        _guard.tell("reaped", self._process.pid)
        return code

    def _states(self) -> set[str]:
        """The states of all its threads, none without /proc. A thread in the middle of a write stops only after it."""
        states = set()
        for stat in Path(f"/proc/{self.pid}/task").glob("*/stat"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                states.add(stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0])
        return states


class Ticketd(ChildProcess):
    """`ticketd` with these arguments: forked from a process that has imported it, or a new interpreter of its own where
    it is wanted `fresh`, or in an environment in which the interpreter would be another one."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        stdout: Path,
        stderr: Path,
        cwd: Path,
        env: Mapping[str, str],
        fresh: bool = False,
    ) -> None:
        self._fresh = fresh or not is_as_ours(env)
        super().__init__(arguments, stdout=stdout, stderr=stderr, cwd=cwd, env=env)

    def _begun(
        self, arguments: list[str], stdout: int, stderr: int, cwd: Path | None, env: Mapping[str, str] | None
    ) -> "subprocess.Popen[bytes] | Forked":
        if self._fresh:
            return super()._begun([sys.executable, "-m", "app", *arguments], stdout, stderr, cwd, env)
        assert cwd is not None
        assert env is not None
        return preloaded.start(arguments, stdout=stdout, stderr=stderr, directory=cwd, environment=env)


def new_directory(prefix: str) -> Path:
    """A temporary directory with a short path (a socket's may have 107 characters), removed with the test run."""
    short = "/tmp" if os.access("/tmp", os.W_OK) else None
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=short))
    _guard.tell("directory", directory)
    return directory


def remove_directory(directory: Path) -> None:
    """Remove a directory made by `new_directory`."""
    shutil.rmtree(directory, ignore_errors=True)
    _guard.tell("removed", directory)


def guard_container(engine: Path, name: str) -> None:
    """Have this container and its volumes removed after the test run, if it is there still; `engine`: its socket."""
    _guard.tell("container", f"{engine} {name}")


_ports_given: set[int] = set()


def free_port() -> int:
    """A free port of 127.0.0.1, never the same one twice.

    It lies below the range from which the kernel takes ports for outgoing connections. In that range a port could be
    taken by a client while its server is down, and a client of a dead server could even connect to itself.
    """
    try:
        lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except OSError:
        lowest = 32768
    if lowest < 12_000:
        lowest = 32768
    for _ in range(1000):
        port = random.randrange(10_000, lowest)
        if port in _ports_given:
            continue
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _ports_given.add(port)
        return port
    raise RuntimeError("no free port found on 127.0.0.1")


def wait_until(condition: Callable[[], object], timeout: float, what: str, interval: float = 0.02) -> float:
    """Look at the condition until it holds; returns the seconds that took. TimeoutError names `what` was waited for.

    It is looked at every `interval` seconds, and where that has taken long already every twentieth of the time, up to
    0.1 s: a look is often a request, and a machine that is busy with looking is what all the other tests wait for.
    """
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        if waited > timeout:
            raise TimeoutError(f"waited {timeout} s for {what}")
        time.sleep(max(interval, min(waited / 20, 0.1)))
    return time.monotonic() - began
