"""The sdists and wheels of the server and of the client: what is in them, and that they install and run.

Nothing is downloaded: the wheels are built with the setuptools of the tests' environment, and installed into a new
environment that finds all other packages there.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest

from tests.documents.pages import ROOT, read
from tests.ticketd import TicketServer, environment

SOURCES = {"ticket-server": ("", "app"), "ticketd-client": ("client/", "ticketd_client")}
"""Where the project of each distribution is, and its package."""


def run(folder: Path, *command: str | Path) -> str:
    """Run a command in a folder, with nothing that would lead back to this checkout, and return what it prints."""
    clean = {name: value for name, value in environment().items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    clean["HOME"] = str(folder)
    done = subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def in_git(place: str) -> list[str]:
    """The files of the checkout below a place that are in git, or would be with the next `git add`."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", place]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=30).stdout
    return sorted(name for name in set(listed.split("\0")) if name and (ROOT / name).is_file())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `made`, the distributions, and `new`, an environment with both wheels.

    They are built from a copy of the checkout: each wheel from its sdist, as a package index serves both.
    """
    home = tmp_path_factory.mktemp("packaging")
    for name in (*in_git("app"), *in_git("client"), "pyproject.toml", "README.md"):
        (home / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, home / "source" / name)
    for source, _ in SOURCES.values():
        run(home, sys.executable, "-m", "build", "--no-isolation", "--outdir", "made", home / "source" / source)
    venv.create(home / "new", with_pip=False)
    # finds the dependencies there, and no editable installation
    (site,) = (home / "new").glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    install = (sys.executable, "-m", "pip", "--python", home / "new/bin/python", "install", "--no-index")
    run(home, *install, "--quiet", "--no-deps", *home.glob("made/*-py3-none-any.whl"))
    return home


def installed(folder: Path, name: str) -> Distribution:
    """One of the two, in the new environment."""
    (found,) = distributions(name=name, path=[*map(str, (folder / "new").glob("lib/python*/site-packages"))])
    return found


def test_a_package_index_would_show_their_metadata(folder: Path) -> None:
    said = run(folder, sys.executable, "-m", "twine", "check", "--strict", *sorted(folder.glob("made/*")))
    assert said.count("PASSED") == 4


@pytest.mark.parametrize("name", SOURCES)
def test_the_whole_package_is_installed_and_nothing_else(folder: Path, name: str) -> None:
    source, package = SOURCES[name]
    files = {str(each) for each in installed(folder, name).files or []}
    held = {each for each in files if ".dist-info" not in each and not each.endswith((".pyc", "bin/ticketd"))}
    assert held == {each.removeprefix(source) for each in in_git(f"{source}{package}")}
    assert f"{package}/py.typed" in held


def test_the_server_requires_what_is_locked_and_the_client_nothing(folder: Path) -> None:
    required = installed(folder, "ticket-server").requires or []
    in_image = [each for each in required if "extra ==" not in each or "postgresql" in each or "tracing" in each]
    locked = re.findall(r"^([\w-]+)==", read("requirements-image.txt"), re.MULTILINE)
    names = {re.findall(r"[\w-]+", each.lower())[0] for each in in_image}
    assert {"asyncpg", "opentelemetry-sdk", "fastapi"} <= names <= {*locked}
    assert [each for each in installed(folder, "ticketd-client").requires or [] if "extra ==" not in each] == []


def test_both_can_be_imported_and_the_server_serves(folder: Path) -> None:
    program = folder / "new/bin/ticketd"
    assert run(folder, program, "--version") == f"ticketd {installed(folder, 'ticket-server').version}\n"
    where = "import app, ticketd_client; print(app.__file__, ticketd_client.__file__)"
    found = run(folder, program.with_name("python"), "-c", where)
    assert all(each.startswith(str(folder / "new")) for each in found.split())
    server = TicketServer(drain_seconds=0)
    server.command, server.imports_from = (program, "serve"), ""
    with server:
        assert server.take("photos")
        for page in ("/", "/docs", "/openapi.json"):
            server.get(page, headers={"accept": "text/html"}).raise_for_status()
        assert server.stop() == 0
