"""A real PostgreSQL: a cluster of its own that can be killed with all its processes, and psql to talk to it.

It listens on a socket in its own directory. Where a test wants a port, it listens on 127.0.0.1 too, and knows users by
SCRAM there.
"""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from tests.harness.commands import Ran
from tests.harness.processes import ChildProcess, free_port, new_directory, remove_directory, wait_until

_PACKAGED = Path("/usr/lib/postgresql")
_SUPERUSER = "tickets"
_UNPRIVILEGED = ("postgres", "nobody")
PASSWORD = "tickets: p@ss/w?rd"
"""Of every user that a test makes; a URL has to escape some of its characters."""


class NoPostgreSQL(Exception):
    """There is no PostgreSQL to test on."""


def _program(name: str) -> str:
    """The newest of Debian's packages, which keep it off the path, or whichever is on the path."""
    packaged = sorted(_PACKAGED.glob(f"*/bin/{name}"), key=lambda path: float(path.parts[-3]))
    found = str(packaged[-1]) if packaged else shutil.which(name)
    if found is None:
        raise NoPostgreSQL(f"found no {name}: install PostgreSQL (Debian, Ubuntu: `apt-get install postgresql`)")
    return found


def unprivileged() -> pwd.struct_passwd | None:
    """Whom the server runs as; None: as we do. It refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in _UNPRIVILEGED:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise NoPostgreSQL(f"PostgreSQL does not run as root, and there is no user {' or '.join(_UNPRIVILEGED)}")


class PostgreSQL:
    """One cluster. Made, it runs and is ready. `listens`: on `port` of 127.0.0.1. `options`: settings of the server.
    `tls`: the files of its certificate and key."""

    def __init__(
        self,
        *,
        listens: bool = False,
        options: Mapping[str, str] | None = None,
        tls: tuple[Path, Path] | None = None,
    ) -> None:
        self.port = free_port() if listens else 5432
        self._listens = listens
        self.options = dict(options or {})
        self._base = new_directory("tickets-postgresql-")
        self._data = self._base / "data"
        self._log = self._base / "log"
        user = unprivileged()
        self._as_user: list[str] = []
        if user is not None:
            os.chown(self._base, user.pw_uid, user.pw_gid)
            self._as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        if tls is not None:
            self._use_certificate(*tls, user)
        self._process: ChildProcess | None = None
        self._make()
        self.start()

    def _use_certificate(self, certificate: Path, key: Path, user: pwd.struct_passwd | None) -> None:
        for name, file in (("ssl_cert_file", certificate), ("ssl_key_file", key)):
            copy = self._base / file.name
            copy.write_bytes(file.read_bytes())
            copy.chmod(0o600)
            if user is not None:
                os.chown(copy, user.pw_uid, user.pw_gid)
            self.options[name] = str(copy)
        self.options["ssl"] = "on"

    def _make(self) -> None:
        made = subprocess.run(
            [
                *(*self._as_user, _program("initdb"), "-D", str(self._data), "-U", _SUPERUSER),
                *("--auth-local=trust", "--auth-host=scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync"),
            ],
            cwd=self._base,
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        if made.returncode != 0:
            raise NoPostgreSQL(f"initdb failed:\n{made.stdout[-1000:]}{made.stderr[-2000:]}")

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
                "127.0.0.1" if self._listens else "",
                "-p",
                str(self.port),
                "-c",
                "shared_buffers=16MB",
                *(part for name, value in self.options.items() for part in ("-c", f"{name}={value}")),
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

    def restart(self, *, kill: bool = False) -> None:
        """Stop it in good order, or kill it, and start it again."""
        if kill or self._process is None:
            self.kill()
        else:
            self._process.signal(signal.SIGINT)  # "fast": it ends the sessions and writes everything down
            self._process.wait(60)
        self.start()

    # -- other lives

    def save(self) -> Path:
        """A copy of the data directory, taken while the server is stopped; it runs again afterwards."""
        assert self._process is not None
        self._process.signal(signal.SIGINT)
        self._process.wait(60)
        copy = self._base / f"saved-{time.monotonic_ns()}"
        self._copy(self._data, copy)
        self.start()
        return copy

    def base_backup(self, *options: str) -> Path:
        """A copy taken while it runs, with everything that a server needs to start on it."""
        copy = self._base / f"backup-{time.monotonic_ns()}"
        self._run("pg_basebackup", "-D", str(copy), "-X", "stream", "-c", "fast", "--no-sync", *options)
        return copy

    def put_back(self, copy: Path) -> None:
        """Kill the server, and give it this copy for its data; it runs when this returns."""
        self.kill()
        shutil.rmtree(self._data)
        self._copy(copy, self._data)
        self.start()

    def promote(self) -> None:
        """Make the primary of a standby, and wait until it is one."""
        self.psql("SELECT pg_promote();")

    def wipe(self) -> None:
        """Kill the server, and make an empty one in its place; it runs when this returns."""
        self.kill()
        shutil.rmtree(self._data)
        self._make()
        self.start()

    def _copy(self, source: Path, target: Path) -> None:
        subprocess.run([*self._as_user, "cp", "-a", str(source), str(target)], cwd=self._base, check=True, timeout=60)

    def _run(self, program: str, *options: str) -> None:
        """One of PostgreSQL's programs, as the server's user, connected to this server."""
        connection = ["-h", str(self._base), "-p", str(self.port), "-U", _SUPERUSER]
        done = subprocess.run(
            [*self._as_user, _program(program), *connection, *options],
            cwd=self._base,
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]

    def dump(self, schema: str) -> str:
        """The output of pg_dump for a schema: statements that make it again."""
        done = subprocess.run(
            [_program("pg_dump"), *self.command()[5:], "-n", schema, "--clean", "--if-exists"],
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout

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
        connection = ["-h", str(self._base), "-p", str(self.port), "-U", user, "-d", "postgres"]
        return [_program("psql"), "-X", "-q", "-A", "-t", *connection, *options]

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that lead every program with libpq to this cluster."""
        where = {"PGHOST": str(self._base), "PGPORT": str(self.port)}
        return {**where, "PGUSER": _SUPERUSER, "PGDATABASE": "postgres"}

    @property
    def program_path(self) -> str:
        """A PATH on which psql is found."""
        return f"{Path(_program('psql')).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"

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

    def make_user(self, name: str) -> None:
        """A user with PASSWORD, and a schema of the same name that is the first of its search path."""
        self.rows(f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'; CREATE SCHEMA {name} AUTHORIZATION {name};")

    def allow(self, lines: str) -> None:
        """Let these lines of pg_hba.conf alone say who may log in over TCP."""
        file = self._data / "pg_hba.conf"
        kept = [line for line in file.read_text().splitlines() if not line.startswith("host")]
        file.write_text("\n".join(kept) + "\n" + lines)
        loaded = "SELECT pg_conf_load_time();"
        before = self.rows(loaded)
        self.rows("SELECT pg_reload_conf();")
        wait_until(lambda: self.rows(loaded) != before, 10, "PostgreSQL to read pg_hba.conf")

    def url_of(self, user: str, query: str = "", *, password: str = PASSWORD) -> str:
        """The URL of this user's schema, for TICKETS_DATABASES."""
        return f"postgresql://{user}:{quote(password, safe='')}@127.0.0.1:{self.port}/postgres{query}"

    def rows(self, script: str) -> list[list[str]]:
        """The lines that a script prints, each split into its columns. The script has to succeed."""
        ran = self.psql(script)
        assert ran.status == 0, ran.errors
        return [line.split("|") for line in ran.lines]

    def numbers(self, script: str) -> list[int]:
        """What a script prints, which has to be whole numbers, one a line."""
        ran = self.psql(script)
        assert ran.status == 0, ran.errors
        return list(map(int, ran.lines))


def _is_alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be asked for its status does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
