"""The help of a command lists the settings that the command reads, and no others."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from app.commands import cli
from app.commands.cli import build_parser
from app.commands.setting_flags import ALL, flag_of
from app.settings import Flag, Settings, load
from tests.harness.processes import free_port


class WatchedSettings(Settings):
    """Settings that know which of them were read."""

    read: ClassVar[set[str]] = set()

    def __getattribute__(self, name: str) -> Any:
        if name in ALL:
            WatchedSettings.read.add(name)
        return super().__getattribute__(name)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The settings that a command has read since it loaded them."""

    def load_watched(environment: Mapping[str, str], flags: Mapping[str, Flag] | None = None) -> Settings:
        watched = WatchedSettings.model_construct(**load(environment, flags).__dict__)
        WatchedSettings.read.clear()
        return watched

    monkeypatch.setattr(cli, "load", load_watched)
    return WatchedSettings.read


def listed(command: str, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """The settings that the help of a command lists."""
    arguments = build_parser().parse_args(["help", command])
    arguments.run(arguments)
    words = capsys.readouterr().out.split()
    return {name for name in ALL if flag_of(name) in words}


@pytest.mark.parametrize("command", [("doctor",), ("grow", "--increment", "2")], ids=lambda command: command[0])
def test_a_command_lists_the_settings_that_it_reads(
    command: tuple[str, ...],
    read: set[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Run on the embedded pair, and on databases that nobody serves, with a password of their own."""
    urls = " ".join(f"mysql://tickets@127.0.0.1:{free_port()}/tickets" for _ in range(2))
    of_both: set[str] = set()
    for name, value in (("TICKETS_DATA_DIR", str(tmp_path)), ("TICKETS_DATABASES", urls)):
        monkeypatch.setenv(name, value)
        monkeypatch.setenv("TICKETS_DATABASE_PASSWORD", "secret")
        arguments = build_parser().parse_args([*command, "--probe-interval", "0.01", "--port", "9"])
        arguments.run(arguments)
        of_both |= read
    capsys.readouterr()
    assert listed(command[0], capsys) == of_both
