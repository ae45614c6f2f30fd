"""The command line: its arguments, its exit statuses, and the commands that need no server."""

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

import app.doctor
import app.server
from app.__main__ import main
from app.settings import Settings, flags
from app.version import VERSION

COMMANDS = "serve", "doctor", "grow", "decode", "sql", "take", "bump", "create", "list", "show"
INSTAGRAM = "2217813737473025833"


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith("TICKET"):
            monkeypatch.delenv(name)


def status_of(*arguments: str) -> int:
    """Run a command, and return its exit status."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("--version") == 0
    assert capsys.readouterr().out == f"ticketd {VERSION}\n"
    assert status_of("--help") == 0
    shown = capsys.readouterr().out
    assert all(f"\n  {command} " in shown for command in COMMANDS)
    for command in COMMANDS:
        assert status_of(command, "--help") == 0
        shown = capsys.readouterr().out
        assert shown.startswith(f"Usage: ticketd {command}")
        if command in {"serve", "doctor"}:
            assert [flag.name for flag in flags() if flag.name not in shown or flag.variable not in shown] == []


def test_serve_and_doctor_get_the_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = Mock(return_value=1)
    monkeypatch.setattr(app.server, "serve", run)
    monkeypatch.setattr(app.doctor, "run", run)
    monkeypatch.setenv("TICKETS_PROBE_INTERVAL", "2")
    (tmp_path / "urls").write_text("mysql://u@h/d")
    assert status_of("serve") == 1
    assert status_of("serve", "--port", "1234", "--access-log", "true") == 1
    assert status_of("doctor", "--databases-file", str(tmp_path / "urls")) == 1
    seen: list[Settings] = [call.args[0] for call in run.call_args_list]
    assert [each.probe_interval for each in seen] == [2.0] * 3
    assert [each.port for each in seen] == [8000, 1234, 8000]
    assert [address.name for address in seen[2].databases] == ["h:3306"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Missing command; ticketd --help"),
        (["tkae"], "No such command 'tkae'"),
        (["take"], "Missing argument 'SEQUENCE'; ticketd take --help"),
        (["take", "photos/../x"], "a sequence's name is"),
        (["list", "--url", "http://u:hush@h:8000"], "--url cannot be used"),
        *(
            (["list", "--url", url], f"--url is '{url}'; expected http://host:port or https://host")
            for url in ("redis://h:6379", "http://a..b", "http://h:0", "http://[", "http://h/?x", "http://h x")
        ),
        (["list", "--token-file", "/nowhere/token"], "--token-file: the file cannot be read (No such file"),
        (["grow", "--increment", "4"], "TICKETS_DATABASES: name the ticket databases"),
        *((["grow", *more], "name either --increment M") for more in ([], ["--increment", "4", "--status"])),
        (["grow", "--increment", "0"], "Invalid value for '--increment'"),
        (["serve", "--port", "http"], "--port is 'http'; expected a port"),
        (["serve", "--tokens", "hush"], "No such option: --tokens"),
        (["decode", "--kind", "nope", "7"], "there is no such kind of sequence; there are ticket, instagram"),
        (["decode", "--kind", "instagram", "--increment", "2", "7"], "increment is no parameter of kind instagram"),
        (["decode", "x"], "no kind has such an id"),
        (["sql", "oracle", "--schema", "s", "--shard", "5"], "there is no SQL for 'oracle'"),
        *((["sql", "instagram", "--schema", name, "--shard", "5"], "a schema's name is") for name in ("S;", "pg_x")),
        (["sql", "instagram", "--schema", "s", "--shard", "8192"], "shard is a whole number from 0 to 8191"),
    ],
)
def test_wrong_arguments_are_named(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(*arguments) == 2
    out, err = capsys.readouterr()
    assert err.startswith(f"ticketd: {said}")
    assert (out, err.count("\n"), "hush" in err) == ("", 1, False)


def test_wrong_variables_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asking = "take x", "bump x --above 1", "create x", "list", "show x"
    unknown = ": there is no such setting; the nearest one is {}: rename it, or unset it"
    monkeypatch.setenv("TICKETD_PORT", "tcp://10.0.0.1:8000")  # Kubernetes makes it for a service of this name
    for name, value, commands, said in (
        ("TICKETS_PORTS", "hush", ("serve", "doctor"), unknown.format("TICKETS_PORT")),
        ("TICKETD_URL", "", asking, " is set and empty"),
        ("TICKETD_TOKEN_FILE", "", asking, " is set and empty"),
        ("ticketd_token_fiel", "hush", asking, unknown.format("TICKETD_TOKEN_FILE")),
    ):
        for command in commands:
            with monkeypatch.context() as changed:
                changed.setenv(name, value)
                assert status_of(*command.split()) == 2
            printed = capsys.readouterr().err
            assert printed.startswith(f"ticketd: {name}{said}")
            assert (printed.count("\n"), "hush" in printed) == (1, False)


def test_decode_and_sql(capsys: pytest.CaptureFixture[str]) -> None:
    def lines(arguments: str) -> list[str]:
        assert status_of(*arguments.split()) == 0
        return capsys.readouterr().out.splitlines()

    (line,) = lines(f"decode --kind instagram {INSTAGRAM}")
    known = {"sequence": None, "kind": "instagram", "id_str": INSTAGRAM, "shard": 1001, "counter": 809}
    assert json.loads(line) == known | {"time": "2020-01-09T21:07:01.721Z", "time_ms": 1578604021721}
    (line,) = lines(f"decode --kind instagram --epoch 0 {INSTAGRAM}")
    assert json.loads(line)["time_ms"] == 1578604021721 - 1314220021721
    assert [json.loads(line)["offset"] for line in lines("decode --increment 2 7")] == [1]
    assert {json.loads(each)["kind"] for each in lines(f"decode {INSTAGRAM}")} > {"instagram", "snowflake"}
    shown = "\n".join(lines("sql instagram --schema insta5 --shard 5 --epoch 1314220021721"))
    wanted = "CREATE OR REPLACE FUNCTION insta5.next_id()", "(5::bigint << 10)", "MAXVALUE 1125899906842623"
    assert all(each in shown for each in wanted)


def test_a_reader_that_has_gone_ends_the_command_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "app", "decode", "7"]
    buffered = os.environ | {"PYTHONUNBUFFERED": ""}  # as users' shells have it
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, env=buffered, check=False, timeout=60)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


def test_an_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(app.doctor, "run", Mock(side_effect=KeyboardInterrupt))
    assert status_of("doctor") == 130
    assert capsys.readouterr().err.strip() == ""


def test_the_server_does_not_load_the_modules_of_the_command_line() -> None:
    program = "import sys, app.server, app.settings; assert not {'typer', 'rich', 'app.commands'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
