"""Checks of an installed server and an installed client, in an environment of their own."""

import os
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.harness.processes import ChildProcess, free_port, wait_until

_OURS = re.compile(r"TICKETS_|TICKETD_|OTEL_|PYTHON|PYTEST_|VIRTUAL_ENV|UV_PROJECT|XDG_|MAKE|PYENV_VERSION")
"""How the variables begin that would lead a fresh installation back to this checkout or to its settings."""
_COMMANDS = ("serve", "take", "doctor", "decode", "help")
_READS = """
import urllib.request
print(urllib.request.build_opener(urllib.request.ProxyHandler({{}})).open({url!r}, timeout=20).read().decode())
"""
_TAKES = """
from ticketd_client import AsyncTickets, Tickets, __file__ as file
assert "site-packages" in file, file
with Tickets({url!r}, timeout=20) as tickets:
    print(len(set(tickets.take_many("photos", 50))))
"""


def clean_environment(home: Path, **more: str) -> dict[str, str]:
    """The variables of a user whose home directory is new. What says how this machine reaches a package index stays."""
    home.mkdir(parents=True, exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not _OURS.match(name)}
    return kept | {"HOME": str(home), "TMPDIR": str(home)} | more


def run(command: Sequence[str | Path], environment: dict[str, str], folder: Path, timeout: float = 300) -> str:
    """Run a command in a folder to its end; what it printed. AssertionError with all of it where it failed."""
    ran = subprocess.run(
        [str(each) for each in command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert ran.returncode == 0, f"{' '.join(map(str, command))}: status {ran.returncode}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


def check_server(ticketd: Path, python: Path, version: str, environment: dict[str, str], folder: Path) -> None:
    """Check the program `ticketd` and `python -m app` of one environment: they say their version and help, and serve.

    `folder`: empty, and far from this checkout, which must not be what is imported.
    """
    for program in ([ticketd], [python, "-m", "app"]):
        assert run([*program, "--version"], environment, folder) == f"ticketd {version}\n"
    told = run([ticketd, "help"], environment, folder)
    assert all(f"\n    {command} " in told for command in _COMMANDS), told
    imported = run([python, "-c", "import app; print(app.__file__)"], environment, folder)
    assert "site-packages" in imported, imported
    with served(ticketd, environment, folder) as url:
        assert run([ticketd, "take", "photos", "--url", url], environment, folder) in ("1\n", "2\n")
        for path, part in (("/", "<h1"), ("/docs", "</html>"), ("/openapi.json", '"openapi"')):
            assert part in run([python, "-c", _READS.format(url=url + path)], environment, folder), path
    assert "\nok: even.sqlite3" in "\n" + run(
        [ticketd, "doctor", "--data-dir", folder / "data"], environment, folder
    )  # fmt: skip


def check_client(python: Path, url: str, environment: dict[str, str], folder: Path) -> None:
    """Check the client of one environment: it takes tickets from the server at `url`."""
    assert run([python, "-c", _TAKES.format(url=url)], environment, folder) == "50\n"


@contextmanager
def served(ticketd: Path, environment: dict[str, str], folder: Path) -> Iterator[str]:
    """A server on an embedded pair in `folder`/data: its URL."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    log = folder / "log"
    server = ChildProcess(
        [ticketd, "serve", "--port", str(port), "--data-dir", folder / "data", "--drain-seconds", "0"],
        stdout=log,
        stderr=log,
        cwd=folder,
        env=environment,
    )
    try:
        wait_until(_answers(f"{url}/readyz", server, log), 60, f"the server in {folder}")
        yield url
        assert server.terminate() == 0, log.read_text(encoding="utf-8")
    finally:
        server.kill()


def _answers(url: str, server: ChildProcess, log: Path) -> Callable[[], bool]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def look() -> bool:
        assert server.running, log.read_text(encoding="utf-8")
        try:
            with opener.open(url, timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    return look
