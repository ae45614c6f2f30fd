"""Settings of `ticketd serve`: an unusable one stops the start with one line; files, flags and names do as they say."""

import os
from pathlib import Path

import pytest

from tests.harness.commands import forked_ticketd, ticketd
from tests.harness.pair import MySQLPair, Schema
from tests.harness.ticketd import PATIENT, REPOSITORY, TicketServer

pytestmark = pytest.mark.any_engine
SECRET = "s3cr3t-and-private"


URL = f"mysql://ticketd:{SECRET}@127.0.0.1:3306/tickets"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"TICKETS_PORT": "http"}, ["TICKETS_PORT", "'http'", "0 to 65535"]),
        ({"TICKETS_PORT": "tcp://10.0.0.1:8000"}, ["TICKETS_PORT", "enableServiceLinks"]),
        ({"TICKETS_REQUEST_TIMEOUT": "-1"}, ["TICKETS_REQUEST_TIMEOUT", "'-1'", "seconds"]),
        ({"TICKETS_DATABASE_TIMEOUT": "nan"}, ["TICKETS_DATABASE_TIMEOUT", "'nan'", "seconds"]),
        ({"TICKETS_UNVERIFIED": "maybe"}, ["TICKETS_UNVERIFIED", "'maybe'", "serve or refuse"]),
        ({"TICKETS_INCREMENT": "1"}, ["TICKETS_INCREMENT", "'1'", "number of databases"]),
        ({"TICKETS_DATABASES": f"oracle://u:{SECRET}@h/d"}, ["TICKETS_DATABASES", "mysql://"]),
        ({"TICKETS_DATABASES": f"{URL} mysql://u:{SECRET}@h:port/d"}, ["TICKETS_DATABASES", "port"]),
        ({"TICKETS_DATABASES": f"{URL}?tls=on"}, ["TICKETS_DATABASES", "tls", "ssl-mode"]),
        ({"TICKETS_DATABASES": f"{URL}?ssl-mode=VERIFY_CA&ssl-ca=/nowhere.pem"}, ["TICKETS_DATABASES", "TLS"]),
        ({"TICKETS_DATABASES": URL, "TICKETS_DATABASES_FILE": "/x"}, ["TICKETS_DATABASES_FILE", "both"]),
        ({"TICKETS_DATABASES": URL, "TICKETS_DATABASES_FILE": ""}, ["TICKETS_DATABASES_FILE", "both"]),
        ({"TICKETS_DATABASES": "", "TICKETS_DATABASES_FILE": "/x"}, ["TICKETS_DATABASES_FILE", "both"]),
        ({"TICKETS_DATABASES": f"mysql://u:{SECRET}#{SECRET}@h/d"}, ["percent-encode", "TICKETS_DATABASE_PASSWORD"]),
        ({"TICKETS_DATABASES": f"mysql://u:{SECRET}@h1,h2/d"}, ["TICKETS_DATABASES", "several nodes"]),
        ({"TICKETS_TOKENS_FILE": "/nowhere/tokens"}, ["TICKETS_TOKENS_FILE", "/nowhere/tokens"]),
        ({"TICKETS_TOKENS_FILE": "/dev/null"}, ["TICKETS_TOKENS_FILE", "/dev/null", "is empty"]),
        ({"TICKETS_DATABASES": ""}, ["TICKETS_DATABASES: ''", "it is set and empty", "or embedded"]),
        ({"TICKETS_DATABASES": " \t"}, ["TICKETS_DATABASES: ''", "it is set and empty", "or embedded"]),
        ({"TICKETS_DATABASES_FILE": ""}, ["TICKETS_DATABASES_FILE: ''", "it is set and empty", "the path of a file"]),
        ({"TICKETS_TOKENS": ""}, ["TICKETS_TOKENS: ''", "it is set and empty", "tokens separated by spaces"]),
        ({"TICKETS_TOKENS_FILE": ""}, ["TICKETS_TOKENS_FILE: ''", "it is set and empty", "the path of a file"]),
        (
            {"TICKETS_ADMIN_TOKENS": ""},
            ["TICKETS_ADMIN_TOKENS: ''", "it is set and empty", "tokens separated by spaces"],
        ),
        ({"TICKETS_DATABASE": URL}, ["TICKETS_DATABASE:", "TICKETS_DATABASES"]),
        ({"TICKETS_DATABSES": URL}, ["TICKETS_DATABSES:", "TICKETS_DATABASES"]),
        ({"TICKETS_TOKEN": SECRET}, ["TICKETS_TOKEN:", "TICKETS_TOKENS"]),
        ({"TICKETS_ADMIN_TOKEN": SECRET}, ["TICKETS_ADMIN_TOKEN:", "TICKETS_ADMIN_TOKENS"]),
        ({"tickets_tokens": SECRET}, ["tickets_tokens:", "TICKETS_TOKENS"]),
        ({"TICKET_TOKENS": SECRET}, ["TICKET_TOKENS:", "TICKETS_TOKENS"]),
        ({"TICKETS_HOST": "0.0.0.0"}, ["TICKETS_DATABASES: it is unset", "'0.0.0.0'", "or embedded"]),
        ({"TICKETS_HOST": "0.0.0.0", "TICKETS_RING": SECRET}, ["TICKETS_DATABASES: it is unset", "TICKETS_RING"]),
        ({"TICKETS_DATA_DIR": "/dev/null/data"}, ["TICKETS_DATA_DIR", "/dev/null is not a folder"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
@pytest.mark.parametrize("command", [["serve"], ["doctor"], ["grow", "--increment", "2"]], ids=lambda words: words[0])
def test_a_setting_that_cannot_be_used_stops_the_start_with_one_line(
    command: list[str], settings: dict[str, str], expected: list[str]
) -> None:
    if command[0] == "grow" and "TICKETS_INCREMENT" in settings:
        command = ["grow", "--increment", "1"]
        expected = ["--increment", *expected[1:]]
    done = forked_ticketd(*command, settings=settings)
    assert (done.status, done.output) == (2, ""), done
    (line,) = done.errors.splitlines()
    for words in expected:
        assert words in line
    assert SECRET not in done.errors


def test_a_flag_that_cannot_be_used_is_named_as_the_flag() -> None:
    done = ticketd("serve", "--probe-interval", "often")
    assert done.status == 2
    (line,) = done.errors.splitlines()
    assert "--probe-interval" in line
    assert "'often'" in line


@pytest.mark.parametrize("flag", ["--databases", "--database-password", "--tokens", "--admin-tokens"])
def test_a_secret_on_the_command_line_is_refused_with_what_there_is_instead(flag: str) -> None:
    variable = "TICKETS_" + flag.removeprefix("--").replace("-", "_").upper()
    for arguments in ([flag, URL], [f"{flag}={URL}"], [flag]):
        done = forked_ticketd("serve", *arguments)
        assert (done.status, done.output) == (2, "")
        assert done.errors == (
            f"ticketd: {flag}: there is no such flag, because other users of this machine can read a command line; use "
            f"{flag}-file FILE, {variable} or {variable}_FILE\n"
        )


def test_an_unknown_name_is_warned_of_and_its_value_is_not_shown() -> None:
    with TicketServer(fresh=True, settings={"TICKETS_DATABASE_URLS": URL, "TICKETS_DRAIN_TIME": 1}) as server:
        server.wait_ready()
        log = server.log_text()
    assert "unknown setting name=TICKETS_DATABASE_URLS" in log
    assert "unknown setting name=TICKETS_DRAIN_TIME" in log
    assert SECRET not in log


@pytest.mark.parametrize("named", [{}, {"TICKETS_DATABASES": "embedded"}], ids=["unset", "named"])
def test_the_embedded_pair_says_so_with_its_whole_path(named: dict[str, str], tmp_path: Path) -> None:
    folder = os.path.relpath(tmp_path / "data", REPOSITORY)
    settings = {**PATIENT, **named, "TICKETS_DATA_DIR": folder}
    with TicketServer(settings=settings) as server:
        server.wait_ready()
        assert server.get("/healthz").json()["embedded"] is True
        assert '<span class="pill warn" id="embedded">embedded</span>' in server.get("/").text
        assert f"serves the embedded pair of ticket databases folder={REPOSITORY / folder}" in server.log_text()
    said = forked_ticketd("doctor", settings=settings)
    assert f"note: these are the two embedded ticket databases, in the folder {REPOSITORY / folder};" in said.output


def test_databases_that_are_named_are_not_called_embedded(fresh_schema: Schema) -> None:
    with TicketServer(fresh_schema.urls, settings={**PATIENT, "TICKETS_HOST": "0.0.0.0"}) as server:
        server.wait_ready()
        assert "embedded" not in server.get("/healthz").json()
        assert 'id="embedded"' not in server.get("/").text
        assert "embedded" not in server.log_text()
    assert "embedded" not in forked_ticketd("doctor", settings={"TICKETS_DATABASES": fresh_schema.urls}).output


def test_settings_come_from_files_and_flags(mysql_pair: MySQLPair, fresh_schema: Schema, tmp_path: Path) -> None:
    urls, password = tmp_path / "urls", tmp_path / "password"
    urls.write_text(fresh_schema.urls.replace(":only-for-tests@", "@").replace(" ", "\n") + "\n", encoding="utf-8")
    password.write_text("only-for-tests\n", encoding="utf-8")
    with TicketServer(
        fresh=True,
        settings={"TICKETS_DATABASES_FILE": urls, "TICKETS_PROBE_INTERVAL": "never"},
        arguments=["--database-password-file", str(password), "--probe-interval", "0.5"],
    ) as server:
        server.wait_health("pass")
        assert [each["name"] for each in server.databases()] == [database.name for database in mysql_pair]
        assert {server.ticket("photos") for _ in range(2)} == {1, 2}
        assert "only-for-tests" not in server.log_text()


def test_help_names_every_command_and_every_setting() -> None:
    top, serve = ticketd("--help"), ticketd("serve", "--help")
    assert top.status == serve.status == 0
    assert "serve" in top.output
    for name in ("DATABASES", "DATA_DIR", "PORT", "REQUEST_TIMEOUT", "DATABASE_TIMEOUT", "DRAIN_SECONDS", "TOKENS"):
        assert f"TICKETS_{name}" in serve.output
        assert "--" + name.lower().replace("_", "-") in serve.output
    assert "--databases-file FILE" in serve.output
    assert "--tokens-file FILE" in serve.output


def test_a_command_line_that_makes_no_sense_says_how_it_is_used() -> None:
    done = ticketd("sevre")
    assert done.status == 2
    assert done.errors.startswith("usage: ticketd")
