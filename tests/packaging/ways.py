"""The ways of installing the server and the client, each into an environment of its own."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.packaging.installed import clean_environment, run

OLDEST = {"server": (3, 11), "client": (3, 9)}
"""The oldest Python of each distribution, as its pyproject.toml has it."""
SERVER = "ticket-server"
_LATEST_MINOR = 20
_CODE_HOST = "https://code.invalid/ticket-server"
"""Stands for the address on a code host. git reads the checkout instead. pip takes no file:// address after
a name."""


class Stage(NamedTuple):
    """What all ways share. `checkout`: a repository with everything committed. `dist`: its sdists and wheels. `tools`:
    the folder of uv and pipx. `caches`: of what the index serves."""

    checkout: Path
    dist: Path
    tools: Path
    caches: Path

    def environment(self, folder: Path) -> dict[str, str]:
        """The variables for one way, in a folder of its own."""
        return clean_environment(
            folder / "home",
            PIP_CACHE_DIR=str(self.caches / "pip"),
            UV_CACHE_DIR=str(self.caches / "uv"),
            UV_PYTHON_DOWNLOADS="never",
            UV_TOOL_DIR=str(folder / "tools"),
            UV_TOOL_BIN_DIR=str(folder / "bin"),
            PIPX_HOME=str(folder / "pipx"),
            PIPX_BIN_DIR=str(folder / "bin"),
            GIT_CONFIG_COUNT="1",
            GIT_CONFIG_KEY_0=f"url.file://{self.checkout}.insteadOf",
            GIT_CONFIG_VALUE_0=_CODE_HOST,
        )


class Installed(NamedTuple):
    """The interpreter of an installation, and the folder of its commands."""

    python: Path
    commands: Path


class Way(NamedTuple):
    """A way of installing: the command as docs/install.md has it, what it installs, how it is done in a new folder, and
    with which Python if not with that of the tests."""

    command: str
    server: bool
    client: bool
    install: Callable[[Stage, Path], Installed]
    python: str = ""

    @property
    def name(self) -> str:
        return f"{self.command} ({self.python})" if self.python else self.command


def interpreters(oldest: tuple[int, int]) -> list[Path]:
    """Each Python on the path from this version on, the oldest first, that can make a virtual environment."""
    found = []
    for minor in range(oldest[1], _LATEST_MINOR):
        program = shutil.which(f"python{oldest[0]}.{minor}")
        if program is None:
            continue
        asked = subprocess.run(
            [program, "-c", "import ensurepip, sys, venv; print(sys.executable)"],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        if asked.returncode == 0:
            found.append(Path(asked.stdout.strip()))
    return found or [Path(sys.executable)]


def pip(*what: Callable[[Stage], str | Path], python: Path | None = None) -> Callable[[Stage, Path], Installed]:
    """`python -m venv`, then `pip install` in the checkout."""

    def install(stage: Stage, folder: Path) -> Installed:
        environment = stage.environment(folder)
        run([python or sys.executable, "-m", "venv", folder / "new"], environment, folder)
        commands = folder / "new/bin"
        arguments = [each(stage) for each in what]
        run([commands / "pip", "install", "--quiet", *arguments], environment, stage.checkout, timeout=600)
        run([commands / "pip", "check"], environment, folder)
        return Installed(commands / "python", commands)

    return install


def uv_tool(what: Callable[[Stage], str | Path]) -> Callable[[Stage, Path], Installed]:
    """`uv tool install`."""

    def install(stage: Stage, folder: Path) -> Installed:
        command: list[str | Path] = [
            stage.tools / "uv",
            "tool",
            "install",
            "--quiet",
            "--python",
            Path(sys.executable).resolve(),
        ]
        run([*command, what(stage)], stage.environment(folder), stage.checkout, timeout=600)
        return Installed(folder / "tools" / SERVER / "bin/python", folder / "bin")

    return install


def pipx(what: Callable[[Stage], str | Path]) -> Callable[[Stage, Path], Installed]:
    """`pipx install`."""

    def install(stage: Stage, folder: Path) -> Installed:
        command: list[str | Path] = [
            stage.tools / "pipx",
            "install",
            "--quiet",
            "--python",
            Path(sys.executable).resolve(),
        ]
        run([*command, what(stage)], stage.environment(folder), stage.checkout, timeout=600)
        return Installed(folder / "pipx/venvs" / SERVER / "bin/python", folder / "bin")

    return install


def _named(name: str) -> Callable[[Stage], str]:
    return lambda _: name


def _from_git(name: str = "", fragment: str = "") -> Callable[[Stage], str]:
    """The checkout's address as it is, or that of a code host where a name stands before it."""
    return lambda stage: f"{name}git+{_CODE_HOST if name else f'file://{stage.checkout}'}{fragment}"


def _built(pattern: str) -> Callable[[Stage], Path]:
    def find(stage: Stage) -> Path:
        (found,) = stage.dist.glob(pattern)
        return found

    return find


def ways() -> Iterator[Way]:
    """All of them, in the order in which they are tried."""
    here, client = _named("."), _named("./client")
    for python in interpreters(OLDEST["server"]):
        yield Way("pip install .", True, False, pip(here, python=python), python.name)
    for extra in ("postgresql", "tracing"):
        yield Way(f"pip install '.[{extra}]'", True, False, pip(_named(f".[{extra}]")))
    yield Way("pip install git+URL", True, False, pip(_from_git()))
    for extra in ("postgresql", "tracing"):
        named = f"ticket-server[{extra}] @ "
        yield Way(f"pip install '{named}git+URL'", True, False, pip(_from_git(named)))
    yield Way("pip install dist/ticket_server-*.whl", True, False, pip(_built("ticket_server-*.whl")))
    yield Way("pip install dist/ticket_server-*.tar.gz", True, False, pip(_built("ticket_server-*.tar.gz")))
    yield Way("pipx install .", True, False, pipx(here))
    yield Way("pipx install git+URL", True, False, pipx(_from_git()))
    yield Way("uv tool install .", True, False, uv_tool(here))
    yield Way("uv tool install git+URL", True, False, uv_tool(_from_git()))
    folder = "#subdirectory=client"
    for python in interpreters(OLDEST["client"]):
        yield Way("pip install ./client", False, True, pip(client, python=python), python.name)
    yield Way("pip install git+URL#subdirectory=client", False, True, pip(_from_git("", folder)))
    for extra in ("sqlalchemy", "django"):
        yield Way(f"pip install './client[{extra}]'", False, True, pip(_named(f"./client[{extra}]")))
        named = f"ticketd-client[{extra}] @ "
        yield Way(f"pip install '{named}git+URL{folder}'", False, True, pip(_from_git(named, folder)))
    yield Way("pip install dist/ticketd_client-*.whl", False, True, pip(_built("ticketd_client-*.whl")))
    yield Way("pip install dist/ticketd_client-*.tar.gz", False, True, pip(_built("ticketd_client-*.tar.gz")))
    yield Way("pip install . ./client", True, True, pip(here, client))
