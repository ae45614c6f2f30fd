"""`ticketd serve`: the process from outside, on its embedded pair: start, signals, end, tokens."""

import signal
import socket
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis

from app.server import warn_if_open
from app.settings import load
from tests.servers_processes import DEADLINE, send
from tests.ticketd import TicketServer

OLD, NEW = "the-token-until-today", "the-token-from-now-on"


def bearer(token: str) -> dict[str, dict[str, str]]:
    return {"headers": {"Authorization": f"Bearer {token}"}}


def refused(**settings: Any) -> tuple[int, str]:
    """Start a server that does not start; return its exit status and the one line that it writes."""
    with closing(TicketServer(**settings)) as server:
        server.start(wait_for=None)
        status = server.wait()
        (line,) = server.log.splitlines()
    return status, line


def test_both_protocols_draw_from_the_embedded_pair_and_only_after_a_kill_it_skips_ids() -> None:
    with TicketServer(speaks_redis=True, drain_seconds=600) as server:
        server.wait_for_line(f"the embedded pair of ticket databases in {server.settings['data_dir']}")
        with redis.Redis(port=server.redis_port, socket_timeout=DEADLINE) as client:
            taken = [*server.take("photos"), client.incr("photos")]
        assert server.health()["embedded"] is True
        send(server.pid, signal.SIGHUP)
        server.wait_for_line("no tokens to read again: none come from files")
        send(server.pid, signal.SIGINT)
        assert server.wait() == 0
        assert server.log.splitlines()[-1].endswith("INFO stopped")
        server.start()
        taken += server.take("photos") + server.take("photos")
        assert len({*taken}) == 4
        assert max(taken) <= 2 * 4  # while one of the two is slow to open, the other one may give them all
        server.kill()
        server.start()
        assert min(server.take("photos") + server.take("photos")) > 100
        assert "Traceback" not in server.log


def test_sigterm_is_not_ready_at_once_and_serves_on_until_a_second_signal_ends_it() -> None:
    with TicketServer(drain_seconds=600) as server:
        send(server.pid, signal.SIGTERM)
        server.wait_for_line("draining for 600 s")
        ready, ticket, live = [server.get(path) for path in ("/readyz", "/ticket/photos", "/livez")]
        assert (ready.status_code, ticket.status_code, live.status_code) == (503, 200, 200)
        assert ticket.headers["connection"] == "close"
        send(server.pid, signal.SIGTERM)
        assert server.wait() == 1
        assert server.log.splitlines()[-1].endswith("a second signal: ending now")


def test_sigterm_ends_it_when_it_has_drained_and_the_address_of_all_ipv6_means_ipv4_as_well() -> None:
    with TicketServer(drain_seconds=1, host="::", databases="embedded") as server:
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began >= 1


def test_tokens_are_read_again_when_their_file_changes_and_at_sighup(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(OLD)
    with TicketServer(speaks_redis=True, tokens_file=file) as server:
        assert server.get("/ticket/photos").status_code == 401
        assert server.get("/ticket/photos", **bearer(OLD)).status_code == 200
        file.write_text(NEW)
        server.wait_for("/ticket/photos", 401, **bearer(OLD))
        with redis.Redis(port=server.redis_port, password=NEW, socket_timeout=DEADLINE) as client:
            assert client.incr("photos")
        file.write_text("")
        send(server.pid, signal.SIGHUP)
        server.wait_for_line("the tokens stay as they were: TICKETS_TOKENS_FILE: the file is empty")
        assert server.get("/ticket/photos", **bearer(NEW)).status_code == 200
        assert not any(token in server.log for token in (OLD, NEW))


def test_a_part_that_ends_ends_the_server_with_the_reason() -> None:
    with closing(TicketServer()) as server:
        server.command = (sys.executable, "-c", BROKEN)
        server.start(wait_for=None)
        assert server.wait() == 1
        line = server.wait_for_line("the server stops, because a part of it has ended")
    assert "RuntimeError: a part is broken" in line


BROKEN = """
import sys
from app.__main__ import main
from app.service import Service
async def watch(self):
    raise RuntimeError("a part is broken")
Service.watch = watch
sys.exit(main(["serve"]))
"""


@pytest.mark.parametrize("variable", ["port", "redis_port"])
def test_a_port_in_use_stops_the_start_before_a_database_is_touched(variable: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, line = refused(**{"data_dir": tmp_path / "data", variable: port})
    name = f"TICKETS_{variable.upper()}"
    assert (status, line) == (1, f"ticketd: {name}: cannot listen on 127.0.0.1:{port}: Address already in use")
    assert not (tmp_path / "data").exists()


def test_a_second_server_on_the_same_folder_does_not_start(tmp_path: Path) -> None:
    with TicketServer(data_dir=tmp_path):
        status, line = refused(data_dir=tmp_path)
    assert (status, line.startswith(f"ticketd: another process uses {tmp_path}")) == (1, True)


@pytest.mark.parametrize(("name", "value"), [("host", "nowhere.invalid"), ("data_dir", "/dev/null/data")])
def test_a_setting_that_cannot_be_used_stops_the_start(name: str, value: str) -> None:
    status, line = refused(**{"databases": "embedded", name: value})
    assert (status, line.startswith(f"ticketd: TICKETS_{name.upper()}")) == (2, True)


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
