"""Start and end: ports, draining, signals, and server processes that die on one folder."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.harness.commands import forked_ticketd
from tests.harness.load import Load
from tests.harness.pair import MySQLPair, Schema
from tests.harness.processes import free_port, wait_until
from tests.harness.proxy import FaultyProxy
from tests.harness.ticketd import PATIENT, REPOSITORY, Reply, TicketServer

pytestmark = pytest.mark.any_engine


def is_ended(server: TicketServer) -> bool:
    return not server.running


# -- the end


def test_sigterm_is_not_ready_at_once_and_serves_on_until_it_has_drained() -> None:
    with TicketServer(fresh=True, settings={**PATIENT, "TICKETS_DRAIN_SECONDS": 2}) as server:
        server.wait_ready()
        with Load([server.address], clients=4, pause=0.01) as load:
            load.run_until_tickets(20)
            told_at = time.monotonic()
            server.signal_terminate()
            wait_until(lambda: server.get("/readyz").status == 503, 1.5, "the server to be not ready")
            assert server.get("/livez").status == 200
            report = server.get("/healthz")
            assert (report.status, report.json()["status"]) == (503, "fail")
            load.run_for(told_at + 1 - time.monotonic())
            assert server.get("/ticket/photos").status == 200
            served = load.result.between(told_at, told_at + 1.5)
            assert server.wait(10) == 0
            ended_at = time.monotonic()
    assert 2 <= ended_at - told_at < 10
    assert served.tickets() > 10
    assert served.failures() == []
    load.result.check()


@pytest.fixture
def slow(
    proxies: tuple[FaultyProxy, FaultyProxy], mysql_pair: MySQLPair, fresh_schema: Schema
) -> Iterator[tuple[TicketServer, Callable[[float], threading.Thread], list[Reply]]]:
    """A server; a function that begins a request whose database takes so many seconds; and the replies."""
    urls = " ".join(
        database.url_of(fresh_schema.name, proxy.port) for database, proxy in zip(mysql_pair, proxies, strict=True)
    )
    settings = {"TICKETS_DATABASE_TIMEOUT": 25, "TICKETS_REQUEST_TIMEOUT": 30, "TICKETS_DRAIN_SECONDS": 1}
    with TicketServer(urls, settings=settings) as server:
        server.wait_health("pass")
        server.ticket("photos")
        server.ticket("photos")
        replies: list[Reply] = []

        def ask() -> None:
            with contextlib.suppress(httpx.TransportError):
                replies.append(server.get("/ticket/photos", timeout=30))

        def begin(seconds: float) -> threading.Thread:
            for proxy in proxies:
                proxy.delay(seconds)
            asking = threading.Thread(target=ask)
            asking.start()
            time.sleep(0.4)
            assert not replies
            return asking

        yield server, begin, replies


Slow = tuple[TicketServer, Callable[[float], threading.Thread], list[Reply]]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_that_is_under_way_is_finished(slow: Slow, number: signal.Signals) -> None:
    server, begin, replies = slow
    asking = begin(1)
    os.kill(server.pid, number)
    asking.join(30)
    assert [reply.status for reply in replies] == [200]
    assert replies[0].json()["id"] > 2
    assert server.wait(20) == 0


def test_a_second_sigint_waits_for_no_request(slow: Slow) -> None:
    server, begin, replies = slow
    asking = begin(20)
    os.kill(server.pid, signal.SIGINT)
    wait_until(lambda: "draining" in server.log_text(), 10, "the first one to be handled")
    os.kill(server.pid, signal.SIGINT)
    assert server.wait(10) != 0
    asking.join(30)
    assert not replies


def test_it_says_good_bye_to_the_databases(mysql_pair: MySQLPair, fresh_schema: Schema) -> None:
    for database in mysql_pair:
        wait_until(lambda d=database: d.connections() == 0, 10, "others to be gone")  # type: ignore[misc]
    before = [aborted(mysql_pair, index) for index in (0, 1)]
    with TicketServer(fresh_schema.urls, settings=PATIENT) as server:
        server.wait_health("pass")
        with Load([server.address], clients=16) as load:
            load.run_until_tickets(200)
        assert all(database.connections() for database in mysql_pair)
        assert server.terminate() == 0
        assert "stopped" in server.log_text()
    for database in mysql_pair:
        wait_until(lambda d=database: d.connections() == 0, 5, "the connections to be closed")  # type: ignore[misc]
    assert [aborted(mysql_pair, index) for index in (0, 1)] == before


def aborted(pair: MySQLPair, index: int) -> int:
    ((_, number),) = pair[index].execute("SHOW GLOBAL STATUS LIKE 'Aborted_clients'", database=None)
    return int(number)


def test_a_second_signal_ends_it_now() -> None:
    with TicketServer(fresh=True, settings={"TICKETS_DRAIN_SECONDS": 60}) as server:
        server.wait_ready()
        server.signal_terminate()
        wait_until(lambda: server.get("/readyz").status == 503, 10, "the server to be not ready")
        server.signal_terminate()
        assert server.wait(10) != 0


def test_sigint_does_not_drain() -> None:
    with TicketServer(fresh=True, settings={"TICKETS_DRAIN_SECONDS": 60}) as server:
        server.wait_ready()
        server.ticket("photos")
        os.kill(server.pid, signal.SIGINT)
        assert server.wait(10) == 0
        assert "Traceback" not in server.log_text()


@pytest.fixture
def sighup_is_not_ignored() -> Iterator[None]:
    """Whoever runs the tests may ignore it, as `nohup` does, and what is started here would inherit that."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def minds_sighup(server: TicketServer) -> bool:
    """Whether SIGHUP is ignored or handled, and does not end it."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        status = Path(f"/proc/{server.pid}/status").read_text(encoding="ascii")
        masks = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigIgn:", "SigCgt:"))]
        return any(mask >> (signal.SIGHUP - 1) & 1 for mask in masks)
    return False


@pytest.mark.usefixtures("sighup_is_not_ignored")
@pytest.mark.parametrize("tokens", ["none", "in the environment", "in a file"])
def test_sighup_never_ends_it(tokens: str, tmp_path: Path) -> None:
    """From the first line of the program to the last, however often it comes."""
    path = tmp_path / "tokens"
    path.write_text("token-of-the-clients-1", encoding="utf-8")
    settings: dict[str, str] = {}
    if tokens == "in the environment":
        settings["TICKETS_TOKENS"] = "token-of-the-clients-1"
    elif tokens == "in a file":
        settings["TICKETS_TOKENS_FILE"] = str(path)
    over = threading.Event()
    server = TicketServer(fresh=True, settings={**PATIENT, "TICKETS_DRAIN_SECONDS": 0.5, **settings})

    def hang_up() -> None:
        while server.running and not over.wait(0.01):
            os.kill(server.pid, signal.SIGHUP)

    with contextlib.closing(server), contextlib.ExitStack() as at_end:
        server.start()
        wait_until(lambda: minds_sighup(server) or "speaks HTTP" in server.log_text(), 60, "the start", 0.001)
        hanging_up = threading.Thread(target=hang_up)
        hanging_up.start()
        at_end.callback(hanging_up.join)
        at_end.callback(over.set)
        server.wait_ready()
        server.signal_terminate()
        assert server.wait(30) == 0
        log = server.log_text()
    assert ("no tokens to read again: none come from files" in log) is (tokens != "in a file")
    assert ("read the tokens again" in log) is (tokens == "in a file")


def test_sighup_is_ignored_before_anything_is_imported_that_takes_time() -> None:
    """Both ways to start it, up to the first import of anything but the interpreter's own library."""
    entry = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]["ticketd"]
    module, _, function = entry.partition(":")
    script = f"from {module} import {function}; {function}()"
    as_module = "import runpy; runpy.run_module('app', run_name='__main__', alter_sys=True)"
    stop = """
import signal, sys
class Stop:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in {*sys.stdlib_module_names, "app"} or name.startswith("app.commands."):
            print(name, signal.getsignal(signal.SIGHUP).name, flush=True)
            import os
            os._exit(0)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
sys.meta_path.insert(0, Stop())
sys.argv[1:] = [COMMAND]
"""
    for start in (script, as_module):
        for command, expected in (("serve", "SIG_IGN"), ("take", "SIG_DFL")):
            code = stop.replace("COMMAND", repr(command)) + start
            done = subprocess.run(
                [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
            )
            assert done.stdout == f"app.commands.cli {expected}\n", done


def test_it_ends_in_time_while_both_databases_are_frozen(fragile: Schema) -> None:
    with TicketServer(fragile.urls) as server:
        server.wait_health("pass")
        server.ticket("photos")
        for database in fragile.pair:
            database.freeze()
        assert server.terminate(15) == 0


@pytest.mark.parametrize("variable", ["TICKETS_PORT", "TICKETS_REDIS_PORT"])
def test_a_port_that_is_taken_is_named_before_a_database_is_touched(variable: str, tmp_path: Path) -> None:
    data = tmp_path / "ticket-data"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        settings = {"TICKETS_PORT": "0", "TICKETS_REDIS_PORT": "0", "TICKETS_DATA_DIR": str(data), variable: port}
        done = forked_ticketd("serve", settings=settings)
    assert (done.status, done.output) == (1, ""), done
    assert done.errors == f"ticketd: {variable}: cannot listen on 127.0.0.1:{port}: Address already in use\n"
    assert not data.exists()


def test_one_port_cannot_serve_both_protocols() -> None:
    port = str(free_port())
    done = forked_ticketd("serve", settings={"TICKETS_PORT": port, "TICKETS_REDIS_PORT": port})
    assert done.status == 1
    assert done.errors == f"ticketd: TICKETS_REDIS_PORT: cannot listen on 127.0.0.1:{port}: Address already in use\n"


# -- several processes on one folder


def test_several_servers_on_one_folder_never_draw_twice_though_they_are_killed(tmp_path: Path) -> None:
    servers = [TicketServer(data_dir=tmp_path, settings=PATIENT) for _ in range(3)]
    addresses = [server.address for server in servers]
    try:
        for server in servers:
            server.start()
        for server in servers:
            server.wait_ready()
        with Load(addresses, clients=12, mix=["photos", "accounts"], hop=3, pause=0.03) as load:
            for victim in servers[:2]:
                load.run_until_tickets(200)
                victim.kill()
                load.run_until_tickets(100)
                victim.start()
                victim.wait_ready()
            load.run_until_tickets(200)
            log = "".join(server.log_text() for server in servers)
    finally:
        for server in servers:
            server.close()
    load.result.check()
    assert {answer.status for answer in load.result.failures()} <= {0}, load.result.failures()[:5]
    assert {i % 2 for answer in load.result.answers for i in answer.ids} == {0, 1}
    assert "Traceback" not in log


def test_tickets_go_on_where_they_were_after_every_server_was_killed(tmp_path: Path) -> None:
    with TicketServer(data_dir=tmp_path, settings=PATIENT) as server:
        server.wait_ready()
        before = [server.ticket("photos") for _ in range(20)]
        server.restart(kill=True)
        server.wait_ready()
        after = [server.ticket("photos") for _ in range(20)]
    assert len({*before, *after}) == 40
