"""The command behind `make install-check`: install in every documented way, each time from a clean environment, and use
what was installed. It reaches the package index and takes minutes."""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from app.common.version import VERSION
from tests.harness.checkout import copy_of_the_repository
from tests.harness.processes import new_directory, remove_directory
from tests.packaging.installed import check_client, check_server, run, served
from tests.packaging.ways import Installed, Stage, Way, pip, ways

_SHARED_FILES = """
import importlib.metadata
server, client = (
    {str(file) for file in importlib.metadata.distribution(name).files} for name in ("ticket-server", "ticketd-client")
)
print(sorted(server & client))
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.packaging", description=__doc__)
    parser.add_argument("only", nargs="*", metavar="WORD", help="only the ways with one of these words in their names")
    only = parser.parse_args().only
    chosen = [way for way in ways() if not only or any(word in way.name for word in only)]
    folder = new_directory("tickets-install-")
    try:
        failed = try_all(chosen, folder)
    finally:
        remove_directory(folder)
    print(f"{len(chosen) - failed} of {len(chosen)} ways of installing work")
    return 1 if failed or not chosen else 0


def try_all(chosen: list[Way], folder: Path) -> int:
    """Try these ways, and say a line of each; how many failed."""
    stage = prepare(folder)
    failed = 0
    with ExitStack() as running:
        url = ""
        for number, way in enumerate(chosen):
            place = folder / f"way-{number}"
            place.mkdir()
            began = time.monotonic()
            try:
                installed = way.install(stage, place)
                if way.client and not url:
                    url = running.enter_context(a_server(stage, folder / "server"))
                use(way, installed, stage, place, url)
            except (AssertionError, OSError, subprocess.SubprocessError, ValueError) as error:
                failed += 1
                print(f"FAILED       {way.name}\n{error}", flush=True)
            else:
                print(f"ok {time.monotonic() - began:6.1f} s  {way.name}", flush=True)
    return failed


def prepare(folder: Path) -> Stage:
    """The checkout, the tools and the distributions that the ways install from."""
    stage = Stage(folder / "checkout", folder / "dist", folder / "tooling/bin", folder / "caches")
    copy_of_the_repository(stage.checkout)
    environment = stage.environment(folder)
    run([sys.executable, "-m", "venv", folder / "tooling"], environment, folder)
    run([stage.tools / "pip", "install", "--quiet", "build", "pipx", "uv"], environment, folder)
    for source in (stage.checkout, stage.checkout / "client"):
        run([stage.tools / "python", "-m", "build", "--outdir", stage.dist, source], environment, folder)
    return stage


@contextmanager
def a_server(stage: Stage, folder: Path) -> Iterator[str]:
    """The URL of a server for the clients, installed from the checkout."""
    folder.mkdir()
    installed = pip(lambda _: ".")(stage, folder)
    with served(installed.commands / "ticketd", stage.environment(folder), folder) as url:
        yield url


def use(way: Way, installed: Installed, stage: Stage, folder: Path, url: str) -> None:
    """Check what was installed, in an empty folder. `url`: of a server for the client."""
    environment = stage.environment(folder)
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    if way.server:
        check_server(installed.commands / "ticketd", installed.python, VERSION, environment, elsewhere)
    if way.client:
        check_client(installed.python, url, environment, elsewhere)
    if way.server and way.client:
        shared = run([installed.python, "-c", _SHARED_FILES], environment, elsewhere).strip()
        assert shared == "[]", f"files of two distributions: {shared}"


if __name__ == "__main__":
    sys.exit(main())
