"""The sdists and wheels of the server and of the client: what is in them, and that they install and run.

Nothing is downloaded: the wheels are built with the setuptools of the tests' environment, and installed into a new
environment that finds all other packages there.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.servers_processes import end_guard, free_port, guard, wait_until
from tests.ticketd import DEADLINE, environment

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
SCRIPT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]["ticketd"]
PACKAGE = str(SCRIPT).partition(".")[0]
"""The server's package."""
SOURCES = {"ticket_server": ("", PACKAGE), "ticketd_client": ("client/", "ticketd_client")}
"""Where the project of each distribution is, and its package."""


class Built(NamedTuple):
    """A folder, and the files of each distribution that were built there."""

    folder: Path
    sdists: dict[str, Path]
    wheels: dict[str, Path]


def run(folder: Path, *command: str | Path) -> str:
    """Run a command in a folder, with no setting of this process, and return what it prints."""
    done = subprocess.run(
        command, cwd=folder, env=clean(folder), capture_output=True, text=True, check=False, timeout=110
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def clean(folder: Path) -> dict[str, str]:
    """The environment of a user whose home this folder is, without what would lead back to this checkout."""
    return {name: value for name, value in environment().items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))} | {
        "HOME": str(folder)
    }


def in_git(place: str) -> list[str]:
    """The files of the checkout below a place that are in git, or would be with the next `git add`."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", place or "."]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=30).stdout
    return sorted(name for name in set(listed.split("\0")) if name and (ROOT / name).is_file())


@pytest.fixture(scope="module")
def built() -> Iterator[Built]:
    """The distributions, from a copy of the checkout: each wheel from its sdist, as a package index serves both."""
    folder = Path(tempfile.mkdtemp(prefix="packaging-"))
    try:
        for name in (*in_git(PACKAGE), *in_git("client"), "pyproject.toml", "README.md"):
            (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / "source" / name)
        made = folder / "made"
        for source, _ in SOURCES.values():
            build = (sys.executable, "-m", "build", "--no-isolation", "--outdir", made)
            run(folder, *build, folder / "source" / source)
        sdists = {name: found for name in SOURCES for found in made.glob(f"{name}-*.tar.gz")}
        wheels = {name: found for name in SOURCES for found in made.glob(f"{name}-*-py3-none-any.whl")}
        assert sorted(made.iterdir()) == sorted([*sdists.values(), *wheels.values()])
        yield Built(folder, sdists, wheels)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def names_in(wheel: Path) -> set[str]:
    """The files of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def metadata_of(wheel: Path) -> Message:
    """The metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


@pytest.mark.parametrize("name", SOURCES)
def test_a_wheel_holds_the_whole_package_and_nothing_else_and_the_sdist_holds_that_too(built: Built, name: str) -> None:
    source, package = SOURCES[name]
    wanted = {each.removeprefix(source) for each in in_git(f"{source}{package}")}
    held = {each for each in names_in(built.wheels[name]) if ".dist-info/" not in each}
    assert held == wanted
    assert f"{package}/py.typed" in held
    with tarfile.open(built.sdists[name]) as archive:
        there = {each.name.partition("/")[2] for each in archive.getmembers() if each.isfile()}
    assert held | {"PKG-INFO", "README.md", "pyproject.toml"} <= there


def test_a_package_index_would_show_their_metadata(built: Built) -> None:
    said = run(
        built.folder, sys.executable, "-m", "twine", "check", "--strict", *built.sdists.values(), *built.wheels.values()
    )
    assert said.count("PASSED") == 4


def test_the_server_requires_what_is_locked_and_the_client_nothing(built: Built) -> None:
    required = metadata_of(built.wheels["ticket_server"]).get_all("Requires-Dist") or []
    assert {"postgresql", "tracing"} <= set(metadata_of(built.wheels["ticket_server"]).get_all("Provides-Extra") or [])
    in_image = [each for each in required if "extra ==" not in each or "postgresql" in each or "tracing" in each]
    locked = re.findall(r"^([\w-]+)==", (ROOT / "requirements-image.txt").read_text(encoding="utf-8"), re.MULTILINE)
    names = {found[0].lower() for found in (re.match(r"[\w-]+", each) for each in in_image) if found}
    assert len(names) > 10
    assert names - {*locked} == set()
    of_client = metadata_of(built.wheels["ticketd_client"]).get_all("Requires-Dist") or []
    assert [each for each in of_client if "extra ==" not in each] == []


def test_the_wheels_install_side_by_side_and_the_server_serves(built: Built) -> None:
    new, home = built.folder / "new", built.folder / "home"
    home.mkdir()
    venv.create(new, with_pip=False)
    (site,) = new.glob("lib/python*/site-packages")
    # finds the dependencies there, and no editable installation
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    pip = (sys.executable, "-m", "pip", "--python", new / "bin/python", "install", "--quiet", "--no-index", "--no-deps")
    run(home, *pip, *built.wheels.values())
    version = f"ticketd {metadata_of(built.wheels['ticket_server'])['Version']}\n"
    assert run(home, new / "bin/ticketd", "--version") == version
    assert run(home, new / "bin/python", "-m", PACKAGE, "--version") == version
    where = f"import {PACKAGE}, ticketd_client; print({PACKAGE}.__file__, ticketd_client.__file__)"
    assert all(each.startswith(str(site)) for each in run(home, new / "bin/python", "-c", where).split())
    port = free_port()
    command = (new / "bin/ticketd", "serve", "--port", str(port), "--drain-seconds", "0")
    with (built.folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=home, env=clean(home), stdout=log, stderr=log)
    watched = guard(process.pid, home)
    try:
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE)

        def is_ready() -> bool:
            assert process.poll() is None, (built.folder / "log").read_text(encoding="utf-8")
            try:
                return client.get("/readyz").status_code == 200
            except httpx.TransportError:
                return False

        with client:
            wait_until(is_ready, DEADLINE, "the installed server to be ready")
            assert client.get("/ticket/photos").raise_for_status().json()["id"] > 0
            for page in ("/", "/docs", "/openapi.json"):
                client.get(page, headers={"accept": "text/html"}).raise_for_status()
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == os.EX_OK
    finally:
        process.kill()
        process.wait(DEADLINE)
        end_guard(watched)
