"""`ticketd create`, `ticketd list` and `ticketd show`, and where the commands find the server and the token."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.commands import Ran, forked_ticketd
from tests.harness.processes import free_port
from tests.harness.ticketd import TicketServer

pytestmark = pytest.mark.any_engine

TOKEN = "a-token-for-tests"
PATIENT: dict[str, object] = {"TICKETS_DATABASE_TIMEOUT": 10, "TICKETS_REQUEST_TIMEOUT": 14}
"""This machine may be slow, and that is another test's business."""
COMMANDS = (("take", "photos"), ("bump", "photos", "--above", "1"), ("create", "photos"), ("list",), ("show", "photos"))
HEAD = ["SEQUENCE", "KIND", "BITS", "LAST", "HEADROOM", "WARNINGS"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TicketServer]:
    """A server on an embedded pair."""
    with TicketServer(data_dir=tmp_path_factory.mktemp("data"), settings=PATIENT) as running:
        running.wait_ready()
        yield running


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TicketServer]:
    """A server that wants a token, and another one for changes."""
    tokens = {"TICKETS_TOKENS": TOKEN, "TICKETS_ADMIN_TOKENS": f"{TOKEN}-admin"}
    with TicketServer(data_dir=tmp_path_factory.mktemp("guarded"), settings=PATIENT | tokens) as running:
        running.wait_ready()
        yield running


def refused(ran: Ran, status: int) -> str:
    """What a command that did nothing says: one line, on standard error."""
    assert (ran.status, ran.output, ran.errors.count("\n")) == (status, "", 1), ran
    return ran.errors.removeprefix("ticketd: ")


# --- create --------------------------------------------------------------------------------------------------------


def test_create_makes_a_sequence_once(server: TicketServer, new_name: Callable[[], str]) -> None:
    name = new_name()
    ran = forked_ticketd("create", name, "--bits", 32, "--start", 1000, "--url", server.url)
    assert (ran.status, ran.errors, ran.lines[0]) == (0, "", f"{name}: created")
    assert server.ticket(name) >= 1000
    assert server.get(f"/sequence/{name}").json()["bits"] == 32
    for arguments in ([], ["--bits", 32], ["--kind", "ticket"]):
        again = forked_ticketd("create", name, *arguments, "--url", server.url)
        assert (again.status, again.lines[0]) == (0, f"{name}: exists already")


def test_create_takes_every_parameter_of_every_kind(server: TicketServer, new_name: Callable[[], str]) -> None:
    for kind, given in {
        "instagram": {"epoch": 1314220021721, "shards": 2000},
        "simpleflake": {"random_bits": 23, "epoch": 946702800000},
        "snowflake": {},
    }.items():
        name = new_name()
        flags = [part for key, value in given.items() for part in ("--" + key.replace("_", "-"), value)]
        ran = forked_ticketd("create", name, "--kind", kind, *flags, "--json", "--url", server.url)
        assert (ran.status, ran.errors, len(ran.lines)) == (0, "", 1)
        made = json.loads(ran.output)
        assert (made["sequence"], made["kind"]) == (name, kind)
        assert made.items() >= given.items()
        assert server.get(f"/sequence/{name}").json() == made


def test_create_says_what_exists_where_it_differs(server: TicketServer, new_name: Callable[[], str]) -> None:
    name = new_name()
    server.put(f"/sequence/{name}", json={"bits": 32})
    line = refused(forked_ticketd("create", name, "--bits", 64, "--url", server.url), 1)
    assert line == f"409: the sequence {name} exists with 32 bits\n"
    line = refused(forked_ticketd("create", name, "--kind", "uuid4", "--url", server.url), 1)
    assert line.startswith(f"409: the sequence {name} exists with tickets of 32 bits")
    line = refused(forked_ticketd("create", name.upper(), "--url", server.url), 1)
    assert line == f"409: the sequence {name} differs from {name.upper()} by case alone\n"


def test_create_refuses_what_the_server_refuses(server: TicketServer, new_name: Callable[[], str]) -> None:
    name = new_name()
    ran = forked_ticketd("create", name, "--kind", "instagram", "--bits", 64, "--url", server.url)
    assert refused(ran, 1).startswith("422: ")
    assert refused(forked_ticketd("create", "1photos", "--url", server.url), 1).startswith("422: ")
    assert server.get(f"/sequence/{name}").status == 404


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("photos", "--kind", "nonsense"),
        ("photos", "--bits", "33"),
        ("photos", "--start", "-1"),
        ("a", "--shards", "x"),
    ],
)
def test_create_with_arguments_that_cannot_be_used(arguments: tuple[str, ...]) -> None:
    ran = forked_ticketd("create", *arguments, "--url", f"http://127.0.0.1:{free_port()}")
    assert (ran.status, ran.output) == (2, "")


# --- list and show -------------------------------------------------------------------------------------------------


def test_list_has_a_line_for_each_sequence_in_columns(server: TicketServer, new_name: Callable[[], str]) -> None:
    part = new_name()
    for each, body in {"b": {"bits": 32}, "a_longer_name": {}, "c": {"kind": "uuid4"}}.items():
        assert server.put(f"/sequence/{part}_{each}", json=body).status == 201
    tickets = [server.ticket(f"{part}_b") for _ in range(4)]
    ran = forked_ticketd("list", part.upper(), "--url", server.url)
    assert (ran.status, ran.errors) == (0, "")
    head, *rows = ran.lines
    assert head.split() == HEAD
    assert [row.split()[:3] for row in rows] == [
        [f"{part}_a_longer_name", "ticket", "64"],
        [f"{part}_b", "ticket", "32"],
        [f"{part}_c", "uuid4", "128"],
    ]
    last, headroom, warnings = rows[1].split()[3:]
    assert int(last) == max(tickets)
    assert 0 < int(headroom) < 2**32
    assert warnings == "-"
    assert rows[2].split()[3:] == ["-", "-", "-"]
    # every row's columns end, or begin, where those of the heading do
    assert {row.index("ticket" if " ticket " in row else "uuid4") for row in rows} == {head.index("KIND")}
    assert {len(row) for row in rows} == {head.index("WARNINGS") + 1}


def test_list_of_nothing_is_its_heading(server: TicketServer) -> None:
    ran = forked_ticketd("list", "nobody_made_it", "--url", server.url)
    assert (ran.status, [line.split() for line in ran.lines]) == (0, [HEAD])
    ran = forked_ticketd("list", "nobody_made_it", "--json", "--url", server.url)
    assert (ran.status, json.loads(ran.output)["sequences"]) == (0, [])


def test_list_refuses_what_is_no_part_of_a_name(server: TicketServer) -> None:
    assert refused(forked_ticketd("list", "a b", "--url", server.url), 1).startswith("422: search has to be part of")


def test_list_as_json_is_one_line(server: TicketServer) -> None:
    ran = forked_ticketd("list", "--json", "--url", server.url)
    assert (ran.status, ran.errors, len(ran.lines)) == (0, "", 1)
    assert json.loads(ran.output).keys() == server.get("/sequence").json().keys()


def test_show_has_the_databases_and_the_warnings(server: TicketServer, new_name: Callable[[], str]) -> None:
    name = new_name()
    server.put(f"/sequence/{name}", json={"bits": 32, "start": 4_200_000_000})
    ticket = server.ticket(name)
    ran = forked_ticketd("show", name, "--url", server.url)
    assert (ran.status, ran.errors, ran.lines[0]) == (0, "", name)
    words = [line.split() for line in ran.lines]
    assert ["kind", "ticket"] in words
    assert ["ceiling", "4294967295"] in words
    assert ["exhausted", "no"] in words
    assert ["DATABASE", "OFFSET", "STATUS", "LAST", "HEADROOM"] in words
    assert any(row[:3] == ["odd.sqlite3", "1", "up"] for row in words)
    assert any(str(ticket) in row for row in words)
    assert any(line.startswith("  warning: ") and line.endswith("of its ids are used up") for line in ran.lines)
    listed = forked_ticketd("list", name, "--url", server.url)
    assert "of its ids are used up" in listed.lines[1]
    as_json = forked_ticketd("show", name, "--json", "--url", server.url)
    assert (len(as_json.lines), json.loads(as_json.output)["sequence"]) == (1, name)


def test_show_of_what_is_not_there(server: TicketServer) -> None:
    line = refused(forked_ticketd("show", "nobody_made_it", "--url", server.url), 1)
    assert line == "404: there is no sequence nobody_made_it; PUT /sequence/nobody_made_it makes it\n"


# --- server and token ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_server_and_token_come_from_the_environment(
    guarded: TicketServer, command: tuple[str, ...], tmp_path: Path
) -> None:
    token, other = tmp_path / "token", tmp_path / "other"
    token.write_text(f"{TOKEN}-admin\n")
    other.write_text("another\n")
    named = {"TICKETD_URL": guarded.url, "TICKETD_TOKEN_FILE": token}
    ran = forked_ticketd(*command, settings=named)
    assert (ran.status, ran.errors) == (0, "")
    nowhere = {"TICKETD_URL": f"http://127.0.0.1:{free_port()}", "TICKETD_TOKEN_FILE": other}
    ran = forked_ticketd(*command, "--url", guarded.url, "--token-file", token, settings=nowhere)
    assert (ran.status, ran.errors) == (0, "")
    line = refused(forked_ticketd(*command, settings=named | {"TICKETD_TOKEN_FILE": other}), 1)
    assert line.startswith("401: ")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_variables_that_cannot_be_used_are_named(command: tuple[str, ...], tmp_path: Path) -> None:
    for name, value in (
        ("TICKETD_URL", ""),
        ("TICKETD_URL", " "),
        ("TICKETD_URL", "127.0.0.1:8000"),
        ("TICKETD_URL", "http://user:secret@127.0.0.1:8000"),
        ("TICKETD_TOKEN_FILE", ""),
        ("TICKETD_TOKEN_FILE", str(tmp_path / "missing")),
    ):
        line = refused(forked_ticketd(*command, settings={name: value}), 2)
        assert line.startswith(f"{name}: ")
        assert "secret" not in line
    assert refused(forked_ticketd(*command, "--url", ""), 2).startswith("--url: ")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_no_server_there(command: tuple[str, ...]) -> None:
    line = refused(forked_ticketd(*command, settings={"TICKETD_URL": f"http://127.0.0.1:{free_port()}"}), 1)
    assert line.startswith("no answer from http://127.0.0.1:")


@pytest.mark.parametrize("command", COMMANDS[2:], ids=lambda command: command[0])
def test_the_redis_protocol_knows_tickets_alone(command: tuple[str, ...]) -> None:
    line = refused(forked_ticketd(*command, "--url", "redis://127.0.0.1:6379"), 2)
    assert line.startswith("--url: redis://127.0.0.1:6379 speaks the Redis protocol")
