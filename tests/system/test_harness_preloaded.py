"""The harness itself: the program in a process that was forked is the program."""

import contextlib
import os
import signal
from pathlib import Path

import pytest

from tests.harness.commands import REPOSITORY, clean_environment, forked_ticketd, ticketd
from tests.harness.preloaded import is_as_ours
from tests.harness.processes import Ticketd, wait_until
from tests.harness.ticketd import TicketServer

pytestmark = pytest.mark.any_engine


@pytest.mark.parametrize("arguments", [("decode", "--kind", "ulid", "x"), ("--version",), ("take", "a", "-n", "x")])
def test_a_command_says_the_same_and_ends_the_same(arguments: tuple[str, ...]) -> None:
    assert forked_ticketd(*arguments) == ticketd(*arguments)


def test_its_end_is_told() -> None:
    for end, status in ((signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGKILL, -9)):
        with TicketServer() as server:
            os.kill(server.pid, end)
            assert server.wait() == status
            assert not server.running
            server.kill()  # which has ended
            server.start()
            server.wait_alive()
            assert server.returncode is None


def files_of(pid: int) -> set[str]:
    """What the process has open; it goes on meanwhile, and may close some."""
    files = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            files.add(str(each.readlink()))
    return files


def test_it_has_its_own_session_environment_and_files() -> None:
    os.environ["TICKETS_NO_SUCH"] = "from the tests"
    try:
        with TicketServer(settings={"TICKETS_ALSO_NONE": 1}) as one, TicketServer() as other:
            assert len({os.getsid(server.pid) for server in (one, other)} | {os.getsid(0)}) == 3
            assert "unknown setting name=TICKETS_ALSO_NONE" in one.log_text()
            assert "unknown setting" not in other.log_text()
            assert "TICKETS_NO_SUCH" not in one.log_text()
            for server in (one, other):
                assert Path(f"/proc/{server.pid}/cwd").readlink() == REPOSITORY
                files = files_of(server.pid)
                assert {each for each in files if each.startswith("/") and "tickets-" in each} == {
                    str(server.log),
                    str(server.output),
                } | {each for each in files if "/ticket-data" in each}
    finally:
        del os.environ["TICKETS_NO_SUCH"]


def test_what_changes_the_interpreter_gets_one_of_its_own(tmp_path: Path) -> None:
    assert is_as_ours(clean_environment({"TICKETS_PORT": 1}))
    environment = clean_environment({"PYTHONVERBOSE": "1"})
    assert not is_as_ours(environment)
    log = tmp_path / "log"
    process = Ticketd(["--version"], stdout=tmp_path / "output", stderr=log, cwd=REPOSITORY, env=environment)
    assert process.wait(60) == 0
    assert "import 'app.commands.cli'" in log.read_text(encoding="utf-8")


def test_a_thread_that_waits_stands_in_nobodys_way() -> None:
    with TicketServer() as server:
        with pytest.raises(TimeoutError):
            server.wait(0.2)
        server.freeze()
        assert server.running
        server.thaw()
        server.signal_terminate()
        wait_until(lambda: not server.running, 20, "it to end")
        assert server.wait() == 0
