"""The program without its half second of imports: a process that has imported it forks one more for each start.

What runs is the module `app`, as `python -m app` does it, in a process of its own, with its own environment, output,
session and exit status. The process that forks has run nothing of the program, has one thread, and no file open but
its pipes to the tests. Tests of the start, the end and the command line run `python -m app` itself: TicketServer's
`fresh`, and `ticketd` of `commands`.

Run as a program, `python -m tests.harness.preloaded FD`, this is the process that forks. FD is a socket. Each message
is a JSON object of `arguments`, `environment` and `directory`, with three files: stdout, stderr, and a pipe into which
the exit status is written, as `Popen.returncode` has it. The answer is the process's id. It ends when the socket
closes.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
LARGEST = 1 << 17
"""Bytes of a message."""
OF_NO_MATTER = "TICKETS_", "PYTEST_", "PYTHONUNBUFFERED"
"""How the variables begin that the interpreter and what is imported do not read at their start."""


def is_as_ours(environment: Mapping[str, str]) -> bool:
    """Whether an interpreter that starts with this environment would be the one that is there already."""
    return _lasting(environment) == _OURS


def _lasting(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(OF_NO_MATTER)}


_OURS = _lasting(os.environ)


EVERYTHING = (
    *("app.commands.cli", "app.server", "app.commands.grow", "app.doctor.report"),
    *("app.databases.mysql.database", "app.databases.sqlite.database"),
    *("uvloop", "uvicorn.lifespan.off", "uvicorn.protocols.http.httptools_impl", "pydantic.v1", "encodings.idna"),
)
"""The modules that the program imports, some of them only when it needs them."""


class Forked:
    """A process that was forked, with as much of `subprocess.Popen` as ChildProcess wants."""

    def __init__(self, pid: int, status: int) -> None:
        """`status`: the pipe from which the exit status will come; it is closed then."""
        self.pid = pid
        self.returncode: int | None = None
        self._status = status
        self._lock = threading.Lock()
        try:
            self._process: int | None = os.pidfd_open(pid)
        except ProcessLookupError:  # it has ended and was waited for
            self._process = None

    def poll(self) -> int | None:
        """See Popen."""
        with self._lock:
            if self.returncode is None and _has_come(self._status, 0):
                said = os.read(self._status, 16)
                self.returncode = int(said) if said else -signal.SIGKILL  # nobody is left who could say it
                os.close(self._status)
                if self._process is not None:
                    os.close(self._process)
                    self._process = None
            return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """See Popen."""
        with self._lock, contextlib.suppress(ProcessLookupError):
            if self._process is not None:
                signal.pidfd_send_signal(self._process, number)

    def wait(self, timeout: float) -> int:
        """See Popen."""
        with self._lock:
            status = os.dup(self._status) if self.returncode is None else None
        if status is not None:
            try:
                _has_come(status, timeout)
            finally:
                os.close(status)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("ticketd", timeout)
        return code


def _has_come(pipe: int, timeout: float) -> bool:
    waiting = select.poll()  # not select, whose files are the first thousand
    waiting.register(pipe, select.POLLIN)
    return bool(waiting.poll(timeout * 1000))


class Preloaded:
    """The process that forks, from our side. It is started with the first call of `start`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(
        self, arguments: Sequence[str], *, stdout: int, stderr: int, directory: Path, environment: Mapping[str, str]
    ) -> Forked:
        """`ticketd` with these arguments, where `environment` is as ours; its output goes to these files."""
        message = json.dumps(
            {"arguments": list(arguments), "environment": dict(environment), "directory": str(directory)}
        ).encode()
        assert len(message) < LARGEST
        ours, its = os.pipe()
        try:
            with self._lock:
                if self._socket is None:
                    self._socket = self._begin()
                socket.send_fds(self._socket, [message], [stdout, stderr, its])
                pid = int(self._socket.recv(16) or b"0")
            if not pid:
                raise RuntimeError("the process that forks the program has ended; it says why on stderr")
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(its)
        return Forked(pid, ours)

    def _begin(self) -> socket.socket:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.harness.preloaded", str(its.fileno())],
                cwd=REPOSITORY,
                env={**_OURS, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                start_new_session=True,
            )
        atexit.register(self._end)
        return ours

    def _end(self) -> None:
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.wait(timeout=30)


preloaded = Preloaded()


# --- the process that forks ----------------------------------------------------------------------------------------


def _serve(commands: socket.socket) -> list[str]:
    """Fork at each message, and tell how those ended that were forked. Returns in the forked one: its arguments."""
    waits: dict[int, int] = {}
    wakes, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    asked = commands.fileno()
    while True:
        ready, _, _ = select.select([asked, wakes], [], [])
        if wakes in ready:
            os.read(wakes, 4096)
            _tell_who_ended(waits)
        if asked not in ready:
            continue
        message, files, _, _ = socket.recv_fds(commands, LARGEST, 3)
        if not message:
            sys.exit()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            commands.detach()
            return _become(json.loads(message), files)
        waits[pid] = files.pop()
        for file in files:
            os.close(file)
        commands.send(str(pid).encode())


def _tell_who_ended(waits: dict[int, int]) -> None:
    while waits:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        pipe = waits.pop(pid)
        with contextlib.suppress(BrokenPipeError):  # nobody asks any more
            os.write(pipe, str(os.waitstatus_to_exitcode(status)).encode())
        os.close(pipe)


def _become(what: dict[str, object], files: list[int]) -> list[str]:
    os.setsid()
    os.dup2(files[0], 1)
    os.dup2(files[1], 2)
    os.closerange(3, max(files) + 1024)
    os.chdir(str(what["directory"]))
    environment, arguments = what["environment"], what["arguments"]
    assert isinstance(environment, dict)
    assert isinstance(arguments, list)
    os.environ.clear()
    os.environ.update(environment)
    return arguments


def _be_preloaded() -> None:
    commands = socket.socket(fileno=int(sys.argv[1]))
    for name in EVERYTHING:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy every page of what is here
    sys.argv[1:] = _serve(commands)
    runpy.run_module("app", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _be_preloaded()
