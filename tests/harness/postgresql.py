"""A real PostgreSQL: a cluster of its own that can be killed with all its processes, and psql to talk to it.

It listens on a socket in its own directory alone, so that it needs no port.
"""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from tests.harness.commands import Ran
from tests.harness.processes import ChildProcess, new_directory, remove_directory, wait_until

_PACKAGED = Path("/usr/lib/postgresql")
_SUPERUSER = "tickets"
_UNPRIVILEGED = ("postgres", "nobody")


class NoPostgreSQL(Exception):
    """There is no PostgreSQL to test on."""


def _program(name: str) -> str:
    """The newest of Debian's packages, which keep it off the path, or whichever is on the path."""
    packaged = sorted(_PACKAGED.glob(f"*/bin/{name}"), key=lambda path: float(path.parts[-3]))
    found = str(packaged[-1]) if packaged else shutil.which(name)
    if found is None:
        raise NoPostgreSQL(f"found no {name}: install PostgreSQL (Debian, Ubuntu: `apt-get install postgresql`)")
    return found


def _user() -> pwd.struct_passwd | None:
    """Whom the server runs as; None: as we do. It refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in _UNPRIVILEGED:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise NoPostgreSQL(f"PostgreSQL does not run as root, and there is no user {' or '.join(_UNPRIVILEGED)}")


class PostgreSQL:
    """One cluster. Made, it runs and is ready."""

    def __init__(self) -> None:
        self._base = new_directory("tickets-postgresql-")
        self._data = self._base / "data"
        self._log = self._base / "log"
        user = _user()
        self._as_user: list[str] = []
        if user is not None:
            os.chown(self._base, user.pw_uid, user.pw_gid)
            self._as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        made = subprocess.run(
            [
                *(*self._as_user, _program("initdb"), "-D", str(self._data), "-U", _SUPERUSER, "-A", "trust"),
                *("-E", "UTF8", "--locale=C", "--no-sync"),
            ],
            cwd=self._base,
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        if made.returncode != 0:
            raise NoPostgreSQL(f"initdb failed:\n{made.stdout[-1000:]}{made.stderr[-2000:]}")
        self._process: ChildProcess | None = None
        self.start()

    def __enter__(self) -> "PostgreSQL":
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()
        remove_directory(self._base)

    # -- life and death

    def start(self, timeout: float = 60.0) -> None:
        """Start it and wait until it answers."""
        self._process = ChildProcess(
            [
                *self._as_user,
                _program("postgres"),
                "-D",
                self._data,
                "-k",
                self._base,
                "-h",
                "",
                "-c",
                "shared_buffers=16MB",
            ],
            stdout=self._log,
            stderr=self._log,
            cwd=self._base,
        )
        process = self._process

        def answers() -> bool:
            if not process.running:
                raise RuntimeError(f"PostgreSQL ended while it started:\n{self._log.read_text()[-3000:]}")
            return self.psql("SELECT 1;").status == 0

        wait_until(answers, timeout, "PostgreSQL to answer")

    def kill(self) -> None:
        """SIGKILL to the postmaster and every process of it at one moment, as a power cut ends them; and wait."""
        if self._process is None or not self._process.running:
            return
        self._process.freeze()  # it starts no further process
        children = self._children()
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self._process.kill()
        # they keep the shared memory until they are gone, and it would not start beside them
        wait_until(lambda: not any(_is_alive(child) for child in children), 30.0, "the end of PostgreSQL's processes")

    def _children(self) -> list[int]:
        assert self._process is not None
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if int(stat.read_text(errors="replace").rpartition(")")[2].split()[1]) == self._process.pid:
                    found.append(int(stat.parent.name))
        return found

    # -- to talk to it

    def command(self, *options: str, user: str = _SUPERUSER) -> list[str]:
        """psql: values alone, a row a line."""
        connection = ["-h", str(self._base), "-U", user, "-d", "postgres"]
        return [_program("psql"), "-X", "-q", "-A", "-t", *connection, *options]

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that lead every program with libpq to this cluster."""
        return {"PGHOST": str(self._base), "PGUSER": _SUPERUSER, "PGDATABASE": "postgres"}

    @staticmethod
    def environment() -> dict[str, str]:
        """Ours without what psql would listen to."""
        return {name: value for name, value in os.environ.items() if not name.startswith("PG")}

    def psql(self, script: str, user: str = _SUPERUSER, timeout: float = 60.0) -> Ran:
        """Run a script to its end, or to its first error."""
        done = subprocess.run(
            self.command("-v", "ON_ERROR_STOP=1", "-f", "-", user=user),
            input=script,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def numbers(self, script: str) -> list[int]:
        """What a script prints, which has to be whole numbers, one a line."""
        ran = self.psql(script)
        assert ran.status == 0, ran.errors
        return list(map(int, ran.lines))


class Session:
    """One connection, in one psql that stays: for transactions that stand open."""

    def __init__(self, server: PostgreSQL) -> None:
        self._process = subprocess.Popen(
            server.command(),
            env=server.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, statement: str) -> list[str]:
        """The lines of the answer, errors included."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{statement}\n\\warn ---\n")
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            if line == "---\n":
                return lines
            lines.append(line.rstrip("\n"))
        raise RuntimeError(f"psql ended: {lines}")


class Draws:
    """Many sessions that run one statement over and over, each by itself, and what each was answered."""

    def __init__(self, server: PostgreSQL, sessions: int, statement: str, times: int) -> None:
        self._script = f"{statement}\n" * times
        self._processes = [
            subprocess.Popen(
                server.command("-v", "ON_ERROR_STOP=1", "-f", "-"),
                env=server.environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(sessions)
        ]
        self.answered: list[list[int]] = [[] for _ in range(sessions)]
        self._threads = [
            threading.Thread(target=work, args=each)
            for each in zip(self._processes, self.answered, strict=True)
            for work in (self._write, self._read)
        ]
        for thread in self._threads:
            thread.start()

    def wait(self, timeout: float = 90.0) -> Sequence[int]:
        """Wait for their end; returns the exit statuses."""
        statuses = [process.wait(timeout) for process in self._processes]
        for thread in self._threads:
            thread.join(timeout)
        for process in self._processes:
            for pipe in (process.stdin, process.stdout, process.stderr):
                assert pipe is not None
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        return statuses

    def _write(self, process: "subprocess.Popen[str]", _: list[int]) -> None:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(self._script)
            process.stdin.close()

    @staticmethod
    def _read(process: "subprocess.Popen[str]", answered: list[int]) -> None:
        assert process.stdout is not None
        answered.extend(int(line) for line in process.stdout)


def _is_alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be asked for its status does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
