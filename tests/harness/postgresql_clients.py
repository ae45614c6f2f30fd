"""Clients of a real PostgreSQL beside the ticket server: a pooler, a session that stays open, and many that draw."""

import contextlib
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Sequence

from tests.harness.postgresql import PASSWORD, NoPostgreSQL, PostgreSQL, unprivileged
from tests.harness.processes import ChildProcess, free_port, new_directory, remove_directory, wait_until


class PgBouncer:
    """A pooler before a PostgreSQL server, which lets every client in as `user`. `mode`: its pool_mode."""

    def __init__(self, server: PostgreSQL, user: str, mode: str) -> None:
        self.port = free_port()
        self._base = new_directory("tickets-pgbouncer-")
        account = unprivileged()
        settings = self._base / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = host=127.0.0.1 port={server.port} user={user} password='{PASSWORD}'\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = any\npool_mode = {mode}\n"
        )
        if account is not None:
            os.chown(self._base, account.pw_uid, account.pw_gid)
            os.chown(settings, account.pw_uid, account.pw_gid)
        as_user = ["-u", account.pw_name] if account is not None else []
        program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")
        if program is None:
            raise NoPostgreSQL("found no pgbouncer (Debian, Ubuntu: `apt-get install pgbouncer`)")
        log = self._base / "log"
        self._process = ChildProcess([program, *as_user, settings], stdout=log, stderr=log, cwd=self._base)
        wait_until(self._listens, 20, "pgbouncer to listen")

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def __enter__(self) -> "PgBouncer":
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        remove_directory(self._base)


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
