"""The sdists and wheels of the server and the client: what is in them, and that they install and run.

Nothing is downloaded. The wheels are built with the setuptools of the tests' own environment, and installed into a new
one that finds all other packages there.
"""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import NamedTuple

import pytest

from app.common.version import VERSION
from tests.harness.checkout import REPOSITORY, copy_of_the_repository, files
from tests.harness.processes import new_directory, remove_directory
from tests.packaging.installed import check_client, check_server, clean_environment, run, served
from tests.packaging.ways import ways

PACKAGES = {"ticket_server": "app/", "ticketd_client": "ticketd_client/"}
"""The only folder that each distribution installs, beside its metadata."""
SOURCES = {"ticket_server": "", "ticketd_client": "client/"}
"""Where the project of each distribution is in this checkout."""
ENVIRONMENT = dict(os.environ)


class Built(NamedTuple):
    """The folder that everything was built in, and each distribution's files."""

    folder: Path
    sdists: dict[str, Path]
    wheels: dict[str, Path]


@pytest.fixture(scope="module")
def built() -> Iterator[Built]:
    """The distributions, built from a copy of the checkout: each wheel from its sdist, as an index serves both."""
    folder = new_directory("tickets-packaging-")
    copy_of_the_repository(folder / "source")
    built = folder / "dist"
    builders = [
        subprocess.Popen(
            [sys.executable, "-m", "build", "--no-isolation", "--outdir", built, folder / "source" / source],
            cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for source in SOURCES.values()
    ]  # fmt: skip
    for builder in builders:
        printed, _ = builder.communicate(timeout=90)
        assert builder.returncode == 0, printed
    sdists = {name: found for name in PACKAGES for found in built.glob(f"{name}-*.tar.gz")}
    wheels = {name: found for name in PACKAGES for found in built.glob(f"{name}-*-py3-none-any.whl")}
    assert sorted(built.iterdir()) == sorted([*sdists.values(), *wheels.values()])
    yield Built(folder, sdists, wheels)
    remove_directory(folder)


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


@pytest.mark.parametrize("name", PACKAGES)
def test_a_wheel_holds_the_whole_package_and_nothing_else(built: Built, name: str) -> None:
    held = names_in(built.wheels[name])
    metadata = f"{built.wheels[name].name.removesuffix('-py3-none-any.whl')}.dist-info/"
    source = SOURCES[name]
    in_git = {each.removeprefix(source) for each in files() if each.startswith(source + PACKAGES[name])}
    assert {each for each in held if not each.startswith(metadata)} == in_git
    assert f"{PACKAGES[name]}py.typed" in held


def test_templates_and_static_files_are_in_the_server_s_wheel(built: Built) -> None:
    held = names_in(built.wheels["ticket_server"])
    assert any("/templates/" in each and each.endswith(".html") for each in held)
    assert any("/static/" in each and each.endswith(".css") for each in held)


def test_no_file_belongs_to_two_distributions(built: Built) -> None:
    server, client = (names_in(wheel) for wheel in built.wheels.values())
    assert len(server) > 100
    assert not server & client


@pytest.mark.parametrize("name", PACKAGES)
def test_an_sdist_holds_what_its_wheel_does(built: Built, name: str) -> None:
    with tarfile.open(built.sdists[name]) as archive:
        held = {each.name.partition("/")[2] for each in archive.getmembers() if each.isfile()}
    assert {each for each in names_in(built.wheels[name]) if each.startswith(PACKAGES[name])} <= held
    assert {"PKG-INFO", "README.md", "pyproject.toml"} <= held


def test_the_package_index_would_show_their_metadata(built: Built) -> None:
    packages = [str(each) for each in (*built.sdists.values(), *built.wheels.values())]
    said = run([sys.executable, "-m", "twine", "check", "--strict", *packages], ENVIRONMENT, built.folder)
    assert said.count("PASSED") == 4


def test_the_server_requires_only_packages_that_an_index_has(built: Built) -> None:
    required = metadata_of(built.wheels["ticket_server"]).get_all("Requires-Dist") or []
    names = {each.split(";")[0].split(">")[0].split("=")[0].split("<")[0].split("[")[0].strip() for each in required}
    locked = (REPOSITORY / "requirements-test.txt").read_text(encoding="utf-8").lower()
    assert {"fastapi", "aiomysql", "opentelemetry-sdk"} <= names
    assert [name for name in names if f"\n{name.lower()}==" not in locked] == []


def test_the_client_requires_nothing(built: Built) -> None:
    metadata = metadata_of(built.wheels["ticketd_client"])
    assert metadata["Requires-Python"] == ">=3.9"
    assert all("extra ==" in each for each in metadata.get_all("Requires-Dist") or [])


def test_the_wheels_install_side_by_side_and_run(built: Built) -> None:
    """The dependencies are found in the environment of the tests; an editable installation there is not."""
    new = built.folder / "new"
    venv.create(new, with_pip=False)
    python, ticketd = new / "bin/python", new / "bin/ticketd"
    (site,) = new.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    environment = clean_environment(built.folder / "home")
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    run([*pip, "install", "--quiet", "--no-index", "--no-deps", *built.wheels.values()], environment, built.folder)
    assert "No broken requirements" in run([*pip, "check"], environment, built.folder)
    for name in ("server", "client"):
        (built.folder / name).mkdir()
    check_server(ticketd, python, VERSION, environment, built.folder / "server")
    with served(ticketd, environment, built.folder / "client") as url:
        check_client(python, url, environment, built.folder / "client")


def test_every_command_of_the_page_is_a_way_that_is_tried() -> None:
    page = (REPOSITORY / "docs/install.md").read_text(encoding="utf-8")
    commands = set(re.findall(r"`((?:pip|pipx|uv tool) install [^`]+)`", page))
    assert len(commands) > 12
    assert commands <= {way.command for way in ways()}
