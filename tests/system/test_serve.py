"""`ticketd serve`: the process from outside, on its embedded pair: start, signals, end, tokens."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import redis.asyncio

from app.server import warn_if_open
from app.settings import load

PATIENT = {"TICKETS_DATABASE_TIMEOUT": "20", "TICKETS_REQUEST_TIMEOUT": "40", "TICKETS_PROBE_INTERVAL": "0.2"}
"""Settings with which a slow machine changes nothing."""
DEADLINE = 60.0
OLD, NEW, SECRET = "the-token-until-today", "the-token-from-now-on", "s3cret-never-shown"
SERVE = ("-m", "app", "serve")


def environment(folder: Path, **settings: object) -> dict[str, str]:
    """Return the environment of a server."""
    plain = {name: value for name, value in os.environ.items() if not name.upper().startswith("TICKET")}
    own = {f"TICKETS_{name.upper()}": str(value) for name, value in settings.items()}
    return plain | PATIENT | {"TICKETS_PORT": "0", "TICKETS_DATA_DIR": str(folder)} | own


class Server:
    """A running server, whose log is read line by line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.log: list[str] = []
        self.port = self.redis_port = 0

    async def line(self, words: str) -> str:
        """Read the log up to the next line with these words, and return that."""
        assert self.process.stderr is not None
        async with asyncio.timeout(DEADLINE):
            while line := (await self.process.stderr.readline()).decode():
                self.log.append(line)
                if words in line:
                    return line
        raise AssertionError(f"no line with {words!r} in {self.log}")

    async def end(self) -> int:
        """Read the log to its end, and return the exit status."""
        async with asyncio.timeout(DEADLINE):
            _, rest = await self.process.communicate()
        self.log += rest.decode().splitlines()
        assert self.process.returncode is not None
        return self.process.returncode

    async def get(self, path: str, token: str | None = None) -> httpx.Response:
        """Ask over a connection of its own."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(timeout=DEADLINE) as client:
            return await client.get(f"http://127.0.0.1:{self.port}{path}", headers=headers)

    async def until(self, path: str, status: int, token: str | None = None) -> None:
        """Ask until the answer has this status."""
        async with asyncio.timeout(DEADLINE):
            while (await self.get(path, token)).status_code != status:  # noqa: ASYNC110  another process has no event
                await asyncio.sleep(0.02)


async def start(folder: Path, *command: str, **settings: object) -> Server:
    """Start a server with these settings; `port=0` sets TICKETS_PORT."""
    variables = environment(folder, **settings)
    return Server(await asyncio.create_subprocess_exec(sys.executable, *command, env=variables, stderr=subprocess.PIPE))


@asynccontextmanager
async def serving(folder: Path, **settings: object) -> AsyncIterator[Server]:
    """Start a server, and wait until it is ready."""
    server = await start(folder, *SERVE, **settings)
    try:
        server.port = int((await server.line("speaks HTTP on ")).rpartition(":")[2])
        if "redis_port" in settings:
            server.redis_port = int((await server.line("speaks the Redis protocol on ")).rpartition(":")[2])
        await server.until("/readyz", 200)
        yield server
    finally:
        if server.process.returncode is None:
            server.process.kill()
            await server.process.wait()


def stopped(folder: Path, **settings: object) -> tuple[int, str]:
    """Start a server that does not start; return its exit status and the one line that it writes."""
    done = subprocess.run(
        [sys.executable, *SERVE],
        env=environment(folder, **settings),
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE,
    )
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert SECRET not in line
    return done.returncode, line


async def test_both_protocols_draw_from_the_embedded_pair_and_sigint_ends_it_cleanly(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with serving(folder, redis_port=0, drain_seconds=600) as server:
        assert any(f"the embedded pair of ticket databases in {folder}\n" in line for line in server.log)
        first = (await server.get("/ticket/photos")).json()["id"]
        async with redis.asyncio.Redis(port=server.redis_port) as client:
            assert {first, await client.incr("photos")} == {1, 2}
        assert (await server.get("/healthz")).json()["embedded"] is True
        server.process.send_signal(signal.SIGHUP)
        await server.line("no tokens to read again: none come from files")
        server.process.send_signal(signal.SIGINT)
        assert await server.end() == 0
        assert server.log[-1].endswith("INFO stopped")
        assert "Traceback" not in "".join(server.log)
    async with serving(folder) as server:
        assert {(await server.get("/ticket/photos")).json()["id"] for _ in range(2)} == {3, 4}


async def test_sigterm_is_not_ready_at_once_and_serves_on_until_a_second_signal_ends_it(tmp_path: Path) -> None:
    async with serving(tmp_path, drain_seconds=600) as server:
        server.process.send_signal(signal.SIGTERM)
        await server.line("draining for 600 s")
        ready, ticket, live = [await server.get(path) for path in ("/readyz", "/ticket/photos", "/livez")]
        assert (ready.status_code, ticket.status_code, live.status_code) == (503, 200, 200)
        assert ticket.headers["connection"] == "close"
        server.process.send_signal(signal.SIGTERM)
        assert await server.end() == 1
        assert server.log[-1].endswith("a second signal: ending now")


async def test_sigterm_ends_it_when_it_has_drained(tmp_path: Path) -> None:
    async with serving(tmp_path, drain_seconds=1) as server:
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert await server.end() == 0
        assert time.monotonic() - began >= 1


async def test_tokens_are_read_again_when_their_file_changes_and_at_sighup(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(OLD)
    async with serving(tmp_path / "data", redis_port=0, tokens_file=file) as server:
        assert (await server.get("/ticket/photos")).status_code == 401
        assert (await server.get("/ticket/photos", OLD)).status_code == 200
        file.write_text(NEW)
        await server.until("/ticket/photos", 401, OLD)
        assert (await server.get("/ticket/photos", NEW)).status_code == 200
        async with redis.asyncio.Redis(port=server.redis_port, password=NEW) as client:
            assert await client.incr("photos") > 0
        file.write_text("")
        server.process.send_signal(signal.SIGHUP)
        await server.line("the tokens stay as they were: TICKETS_TOKENS_FILE: the file is empty")
        assert (await server.get("/ticket/photos", NEW)).status_code == 200
        assert not any(token in "".join(server.log) for token in (OLD, NEW))


async def test_a_part_that_ends_ends_the_server_with_the_reason(tmp_path: Path) -> None:
    program = """
import sys
from app.__main__ import main
from app.service import Service
async def watch(self):
    raise RuntimeError("a part is broken")
Service.watch = watch
sys.exit(main(["serve"]))
"""
    server = await start(tmp_path, "-c", program)
    line = await server.line("the server stops, because a part of it has ended")
    assert "RuntimeError: a part is broken" in line
    assert await server.end() == 1


@pytest.mark.parametrize("variable", ["port", "redis_port"])
def test_a_port_in_use_stops_the_start_before_a_database_is_touched(variable: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, line = stopped(tmp_path / "data", **{variable: port})
    name = f"TICKETS_{variable.upper()}"
    assert (status, line) == (1, f"ticketd: {name}: cannot listen on 127.0.0.1:{port}: Address already in use")
    assert not (tmp_path / "data").exists()


async def test_the_address_of_all_ipv6_means_ipv4_as_well(tmp_path: Path) -> None:
    async with serving(tmp_path, host="::", databases="embedded") as server:
        assert (await server.get("/livez")).status_code == 200


async def test_a_second_server_on_the_same_folder_does_not_start(tmp_path: Path) -> None:
    async with serving(tmp_path):
        status, line = await asyncio.to_thread(stopped, tmp_path)
        assert (status, line.startswith(f"ticketd: another process uses {tmp_path}")) == (1, True)


@pytest.mark.parametrize(
    ("settings", "beginning"),
    [
        ({"port": "http"}, "TICKETS_PORT is 'http'; expected a port"),
        ({"token": SECRET}, "TICKETS_TOKEN: there is no such setting; the nearest one is TICKETS_TOKENS"),
        ({"databases": f"oracle://u:{SECRET}@h/d"}, "TICKETS_DATABASES: a URL has to begin with mysql://"),
        (
            {"host": "nowhere.invalid", "databases": "embedded"},
            "TICKETS_HOST is 'nowhere.invalid'; expected an address",
        ),
        ({"data_dir": "/dev/null/data"}, "TICKETS_DATA_DIR: "),
    ],
)
def test_a_setting_that_cannot_be_used_stops_the_start(
    settings: dict[str, str], beginning: str, tmp_path: Path
) -> None:
    status, line = stopped(tmp_path, **settings)
    assert status == 2
    assert line.startswith(f"ticketd: {beginning}")


@pytest.mark.parametrize(
    ("settings", "warnings"),
    [
        ({"TICKETS_REDIS_PORT": "1"}, ["without TICKETS_TOKENS", "tokens travel in clear"]),
        ({"TICKETS_TOKENS": OLD}, []),
        ({"TICKETS_HOST": "::1", "TICKETS_REDIS_PORT": "1"}, []),
    ],
)
def test_listening_beyond_loopback_is_warned_of(
    settings: dict[str, str], warnings: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    warn_if_open(load({"TICKETS_HOST": "10.0.0.1", "TICKETS_DATABASES": "embedded"} | settings, {}))
    assert len(caplog.messages) == len(warnings)
    assert all(words in message for words, message in zip(warnings, caplog.messages, strict=True))
