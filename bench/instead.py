"""What somebody would use instead: Redis and PostgreSQL, durable too."""

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench.model import CaseFailed, Missing, Sample, percentile
from tests.harness.processes import ChildProcess, free_port, wait_until


def _run(command: Sequence[str | Path], seconds: float, **options: str | Path) -> str:
    """A program's standard output; CaseFailed where it fails or takes longer."""
    try:
        done = subprocess.run(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
            cwd=options.get("cwd"),
        )
    except subprocess.TimeoutExpired:
        raise CaseFailed(f"{command[0]} did not end within {seconds:.0f} s") from None
    if done.returncode != 0:
        raise CaseFailed(f"{command[0]} failed: {done.stdout.strip()[-300:]}")
    return done.stdout


def _program(name: str, package: str, folders: Sequence[str] = ()) -> str:
    path = shutil.which(name, path=os.pathsep.join([*folders, os.environ.get("PATH", os.defpath), "/usr/sbin"]))
    if path is None:
        raise Missing(f"{name} is not installed (Debian, Ubuntu: apt-get install {package})")
    return path


class Redis:
    """Redis, every write flushed to its append-only file before it is answered."""

    def __init__(self, directory: Path) -> None:
        program = _program("redis-server", "redis-server")
        self._benchmark = _program("redis-benchmark", "redis-tools")
        self.version = _run([program, "--version"], 10).split()[2].removeprefix("v=")
        directory.mkdir()
        self.port = free_port()
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(directory), "--save", ""]
        self.process = ChildProcess(
            [program, *options, "--appendonly", "yes", "--appendfsync", "always"],
            stdout=directory / "log",
            stderr=directory / "log",
        )
        self._rate = 0.0
        wait_until(self._answers, 60, "Redis to start")

    def _answers(self) -> bool:
        if not self.process.running:
            raise CaseFailed("redis-server did not start")
        try:  # by hand: redis-benchmark asks for ever where nobody listens yet
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False

    def _increments(self, connections: int, count: int) -> dict[str, float]:
        """redis-benchmark takes a number of requests, not a time."""
        where = ["-h", "127.0.0.1", "-p", str(self.port)]
        said = _run(
            [self._benchmark, *where, "-c", str(connections), "-n", str(count), "--csv", "INCR", "tickets"], 120
        )
        lines = [line for line in said.splitlines() if line.startswith('"')]
        if len(lines) < 2:
            raise CaseFailed(f"redis-benchmark said {said.strip()[-300:]}")
        names, values = ([word.strip('"') for word in line.split('","')] for line in lines[:2])
        return {name: float(value) for name, value in zip(names[1:], values[1:], strict=True)}

    def measure(self, connections: int, seconds: float) -> Sample:
        """INCR on one key, unpipelined."""
        if not self._rate:
            self._rate = self._increments(connections, 3000)["rps"]
        found = self._increments(connections, max(1000, int(self._rate * seconds)))
        self._rate = found["rps"]
        return Sample(found["rps"], found["p50_latency_ms"], found["p99_latency_ms"])

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self) -> None:
        """SIGTERM, and wait."""
        self.process.terminate(30)


class PostgreSQL:
    """PostgreSQL with a sequence, as it comes (fsync and synchronous_commit are on)."""

    def __init__(self, directory: Path) -> None:
        folders = [str(found) for found in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
        initdb = _program("initdb", "postgresql", folders)
        server = _program("postgres", "postgresql", folders)
        self._pgbench = _program("pgbench", "postgresql", folders)
        psql = _program("psql", "postgresql", folders)
        self.version = _run([server, "--version"], 10).split()[2]
        directory.mkdir()
        self._directory = directory
        self.port = free_port()
        self._user = _as_somebody_else(directory)
        data = directory / "data"
        _run([*self._user, initdb, "-D", data, "-A", "trust", "-U", "tickets", "--locale=C"], 60, cwd=directory)
        self.process = ChildProcess(
            [
                *self._user,
                server,
                *("-D", data, "-p", str(self.port)),
                *("-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={directory}"),
                *("-c", "max_connections=200"),
            ],
            stdout=directory / "log",
            stderr=directory / "log",
            cwd=directory,
        )
        self._where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "tickets"]
        self._setup = [psql, *self._where, "-d", "postgres", "-c", "CREATE SEQUENCE IF NOT EXISTS tickets"]
        self._script = directory / "nextval.sql"
        self._script.write_text("SELECT nextval('tickets');\n", encoding="ascii")
        wait_until(self._answers, 60, "PostgreSQL to start")

    def _answers(self) -> bool:
        if not self.process.running:
            raise CaseFailed("postgres did not start")
        try:
            _run(self._setup, 10)
        except CaseFailed:
            return False
        return True

    def measure(self, connections: int, seconds: float) -> Sample:
        """nextval on one sequence, a prepared statement on every connection."""
        log = self._directory / "pgbench"
        for old in self._directory.glob("pgbench*"):
            old.unlink()
        whole = max(1, round(seconds))
        said = _run(
            [
                *(self._pgbench, *self._where, "--no-vacuum", "--protocol=prepared", f"--client={connections}"),
                *(f"--time={whole}", f"--file={self._script}", "--log", f"--log-prefix={log}", "postgres"),
            ],
            whole + 60,
        )
        rates = [line.split("=")[1].split()[0] for line in said.splitlines() if line.startswith("tps =")]
        if not rates:
            raise CaseFailed(f"pgbench said {said.strip()[-300:]}")
        latencies = sorted(
            int(line.split()[2]) / 1000
            for part in self._directory.glob("pgbench*")
            for line in part.read_text(encoding="ascii").splitlines()
        )
        return Sample(float(rates[0]), percentile(latencies, 50), percentile(latencies, 99))

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self) -> None:
        """SIGTERM, and wait."""
        self.process.terminate(30)


def _as_somebody_else(directory: Path) -> list[str]:
    """PostgreSQL refuses to run as root: where we are root, it runs as `postgres` or `nobody`."""
    if os.geteuid() != 0:
        return []
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        os.chown(directory, user.pw_uid, user.pw_gid)
        setpriv = _program("setpriv", "util-linux")
        return [setpriv, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]
    raise Missing("PostgreSQL does not run as root, and there is no user postgres or nobody")
