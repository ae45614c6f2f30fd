"""The blocks with prompts: typed into a shell beside a real server, and held against what the page shows.

A `…` in a line stands for any letters, a line that is `…` alone for any lines. Each page finds a new server on an
embedded pair, so that its first ticket is 1.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.documents import pages
from tests.documents.pages import PROMPT, REPOSITORY, Block
from tests.documents.test_commands import with_commands
from tests.harness.processes import ChildProcess, free_port, wait_until
from tests.harness.ticketd import PATIENT, TicketServer

pytestmark = pytest.mark.any_engine

ANYTHING = "…"
DONE = "-- the command is done --"
TICKETS, REDIS = "redis-cli -h tickets.example", "redis-cli -h redis.example"
CONSOLES = [each for each in with_commands() if each.language == "console"]


class Typed(NamedTuple):
    """One command and the lines that the page shows below it."""

    command: str
    shown: list[str]


def typed(block: Block) -> list[Typed]:
    """The commands of a block."""
    found: list[Typed] = []
    for line in block.text.splitlines():
        if line.startswith(PROMPT):
            found.append(Typed(line.removeprefix(PROMPT), []))
        else:
            found[-1].shown.append(line)
    return found


def pattern(shown: list[str]) -> str:
    """What a command prints, as a regular expression."""
    lines = ["(?:.*\n)*?" if line == ANYTHING else re.escape(line).replace(ANYTHING, ".*") + "\n" for line in shown]
    return "".join(lines)


class Terminal:
    """A shell on a machine with a ticket server, a client for Redis, and `ticketd` on the path."""

    def __init__(self, folder: Path, stack: ExitStack, *, with_redis: bool) -> None:
        self._folder = folder
        self._port = free_port()
        settings = {**PATIENT, "TICKETS_REDIS_PORT": self._port}
        self._server = stack.enter_context(TicketServer(data_dir=folder / "data", settings=settings))
        self._server.wait_ready()
        (folder / "ticketd").write_text(f'#!/bin/sh\nexec {sys.executable} -m app "$@"\n', encoding="utf-8")
        (folder / "ticketd").chmod(0o755)
        (folder / ".ticket-token").write_text("a-token-of-somebody\n", encoding="utf-8")
        self._addresses = {"http://127.0.0.1:8000": self._server.url, TICKETS: self._client(self._port)}
        if with_redis:
            port = free_port()
            command = ["redis-server", "--port", str(port), "--save", "", "--dir", str(folder), "--bind", "127.0.0.1"]
            process = ChildProcess(command, stdout=folder / "redis", stderr=folder / "redis")
            stack.callback(process.kill)
            wait_until(lambda: "eady to accept" in (folder / "redis").read_text(encoding="utf-8"), 20, "Redis")
            self._addresses[REDIS] = self._client(port)
            self.run("redis-cli -h redis.example SET photos 123456")

    @staticmethod
    def _client(port: int) -> str:
        return f"redis-cli --no-raw -p {port}"

    def run(self, script: str) -> list[str]:
        """What each command printed; DONE parts them."""
        for old, new in self._addresses.items():
            script = script.replace(old, new)
        environment = {
            "PATH": f"{self._folder}:{os.environ['PATH']}",
            "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'client'}",
            "HOME": str(self._folder),
            "TICKETD_URL": self._server.url,
        }
        return pages.run(script, self._folder, environment=environment).split(f"\n{DONE}\n")[:-1]


@pytest.fixture(scope="module", params=sorted({each.page for each in CONSOLES}))
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Terminal]]:
    """A page, and a terminal for it."""
    assert shutil.which("redis-cli"), "install redis-tools"
    name: str = request.param
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("terminal")
        yield name, Terminal(folder, stack, with_redis=REDIS in pages.text_of(name))


def test_every_command_prints_what_the_page_shows(page: tuple[str, Terminal]) -> None:
    name, terminal = page
    for block in (each for each in CONSOLES if each.page == name):
        commands = typed(block)
        printed = terminal.run("".join(f"{each.command}\nprintf '\\n%s\\n' '{DONE}'\n" for each in commands))
        assert len(printed) == len(commands)
        for each, output in zip(commands, printed, strict=True):
            lines = output.rstrip("\n") + "\n" if output.strip() else ""
            assert re.fullmatch(pattern(each.shown), lines), f"{name}:{block.line}\n{each.command}\nprints\n{output}"


@pytest.mark.parametrize(
    ("shown", "output", "alike"),
    [
        (["a"], "a\n", True),
        (["a"], "b\n", False),
        (["a…c"], "abbbc\n", True),
        (["a…c"], "a\nc\n", False),
        (["…", "b"], "a\na\nb\n", True),
        (["…", "b"], "a\nb\nc\n", False),
        (["a"], "a\nb\n", False),
        (["1) (x)"], "1) (x)\n", True),
    ],
)
def test_what_is_shown_is_compared(shown: list[str], output: str, alike: bool) -> None:
    assert (re.fullmatch(pattern(shown), output) is not None) is alike
