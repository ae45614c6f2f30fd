"""The alternatives that the benchmark compares with: Redis and PostgreSQL, both durable."""

import os
import pwd
import socket
from pathlib import Path

from bench.model import CaseFailed, Missing, Sample, percentile
from bench.programs import program, run
from bench.redis_benchmark import RedisBenchmark
from tests.harness.processes import ChildProcess, free_port, wait_until


class Redis:
    """Redis, every write flushed to its append-only file before it is answered."""

    def __init__(self, directory: Path) -> None:
        server = program("redis-server", "redis-server")
        self.version = run([server, "--version"], 10).split()[2].removeprefix("v=")
        directory.mkdir()
        self.port = free_port()
        self._benchmark = RedisBenchmark(self.port, "INCR", "tickets")
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(directory), "--save", ""]
        self.process = ChildProcess(
            [server, *options, "--appendonly", "yes", "--appendfsync", "always"],
            stdout=directory / "log",
            stderr=directory / "log",
        )
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

    def measure(self, connections: int, pipeline: int, seconds: float) -> Sample:
        """INCR on one key."""
        return self._benchmark.measure(connections, pipeline, seconds)

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
        initdb = program("initdb", "postgresql", folders)
        server = program("postgres", "postgresql", folders)
        self._pgbench = program("pgbench", "postgresql", folders)
        psql = program("psql", "postgresql", folders)
        self.version = run([server, "--version"], 10).split()[2]
        directory.mkdir()
        self._directory = directory
        self.port = free_port()
        self._user = _as_somebody_else(directory)
        data = directory / "data"
        run([*self._user, initdb, "-D", data, "-A", "trust", "-U", "tickets", "--locale=C"], 60, cwd=directory)
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
            run(self._setup, 10)
        except CaseFailed:
            return False
        return True

    def measure(self, connections: int, seconds: float) -> Sample:
        """nextval on one sequence, a prepared statement on every connection."""
        log = self._directory / "pgbench"
        for old in self._directory.glob("pgbench*"):
            old.unlink()
        whole = max(1, round(seconds))
        said = run(
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
        setpriv = program("setpriv", "util-linux")
        return [setpriv, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]
    raise Missing("PostgreSQL does not run as root, and there is no user postgres or nobody")
