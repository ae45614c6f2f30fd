"""`ticketd take` and `ticketd bump`, as somebody would type them."""

import json
import os
import socketserver
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.harness.commands import REPOSITORY, clean_environment, command_line, forked_ticketd, ticketd
from tests.harness.kinds import KINDS
from tests.harness.pair import Schema
from tests.harness.processes import free_port
from tests.harness.schema import PASSWORD
from tests.harness.ticketd import TicketServer

pytestmark = pytest.mark.any_engine

TOKEN = "a-token-für-tests"
PATIENT: dict[str, object] = {"TICKETS_DATABASE_TIMEOUT": 10, "TICKETS_REQUEST_TIMEOUT": 14}
"""This machine may be slow, and that is another test's business."""


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
    data = tmp_path_factory.mktemp("guarded")
    with TicketServer(data_dir=data, settings=PATIENT | tokens) as running:
        running.wait_ready()
        yield running


@pytest.fixture
def token_file(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a file with a token."""

    def write(token: str) -> Path:
        file = tmp_path / "token"
        file.write_text(f"{token}\n", encoding="utf-8")
        return file

    return write


# --- help ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["", "serve", "take", "bump", "create", "list", "show", "doctor"])
def test_help_has_examples(command: str) -> None:
    ran = ticketd(*([command] if command else []), "--help")
    assert (ran.status, ran.errors) == (0, "")
    assert "examples:" in ran.output
    assert f"ticketd {command or 'serve'}" in ran.output


def test_what_is_no_command_is_an_error_of_usage() -> None:
    assert ticketd("tak", "photos").status == 2
    assert forked_ticketd("take").status == 2
    assert forked_ticketd("bump", "photos").status == 2
    assert forked_ticketd("bump", "photos", "--above", "1", "--from", "x").status == 2


# --- take ----------------------------------------------------------------------------------------------------------


def test_take_prints_tickets_one_a_line(server: TicketServer, new_name: Callable[[], str]) -> None:
    name = new_name()
    server.put(f"/sequence/{name}")
    one = ticketd("take", name, "--url", server.url)
    assert (one.status, one.errors, one.output) == (0, "", "1\n")
    ran = forked_ticketd("take", name, "-n", 2345, "--url", f"{server.url}/")
    assert (ran.status, ran.errors) == (0, "")
    ids = [int(line) for line in ran.lines]
    assert len({1, *ids}) == 2346


@pytest.mark.parametrize("number", ["0", "-1", "1e3", "1_000", "１０", " 5", "", "x"])
def test_numbers_that_are_none(number: str) -> None:
    ran = forked_ticketd("take", "photos", f"-n{number}")
    assert (ran.status, ran.output) == (2, "")


def test_what_the_server_says_is_the_error(server: TicketServer) -> None:
    ran = forked_ticketd("take", "nobody_made_it", "--url", server.url)
    assert (ran.status, ran.output) == (1, "")
    assert ran.errors == "ticketd: 404: there is no sequence nobody_made_it; PUT /sequence/nobody_made_it makes it\n"
    ran = forked_ticketd("take", "a/b?count=7", "--url", server.url)
    assert (ran.status, ran.output) == (1, "")
    assert ran.errors.startswith(("ticketd: 422: ", "ticketd: 404: "))


def test_no_server_there() -> None:
    ran = forked_ticketd("take", "photos", "--url", f"http://127.0.0.1:{free_port()}")
    assert (ran.status, ran.output) == (1, "")
    assert ran.errors.startswith("ticketd: no answer from http://127.0.0.1:")
    assert "(Connection refused): is the server running there?" in ran.errors
    assert ran.errors.count("\n") == 1


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "ftp://127.0.0.1", "http://", "http://h:port", "http://[::1", "http://h/?x=1"]
)
def test_urls_that_are_none(url: str) -> None:
    ran = forked_ticketd("take", "photos", "--url", url)
    assert (ran.status, ran.output) == (2, "")
    assert ran.errors.startswith("ticketd: --url: ")
    assert ran.errors.count("\n") == 1


def test_a_password_in_the_url_is_refused_and_not_repeated() -> None:
    ran = forked_ticketd("take", "photos", "--url", "http://user:secret@127.0.0.1:8000")
    assert (ran.status, ran.output) == (2, "")
    assert "--token-file" in ran.errors
    assert "secret" not in ran.errors


def test_a_proxy_is_not_asked_for_a_server_on_this_machine(server: TicketServer) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    ran = forked_ticketd("take", "photos", "--url", server.url, settings={"http_proxy": nobody, "HTTP_PROXY": nobody})
    assert (ran.status, ran.errors) == (0, "")


def test_tokens_come_from_a_file(guarded: TicketServer, token_file: Callable[[str], Path], tmp_path: Path) -> None:
    ran = forked_ticketd("take", "photos", "--url", guarded.url)
    assert (ran.status, ran.output) == (1, "")
    assert ran.errors.startswith("ticketd: 401: a bearer token is required")
    assert "--token-file" in ran.errors
    ran = forked_ticketd("take", "photos", "--url", guarded.url, "--token-file", token_file("another"))
    assert ran.errors.startswith("ticketd: 401: this token is not known")
    ran = forked_ticketd("take", "photos", "--url", guarded.url, "--token-file", token_file(TOKEN))
    assert (ran.status, ran.errors) == (0, "")
    ran = forked_ticketd("take", "photos", "--url", guarded.url, "--token-file", tmp_path / "missing")
    assert (ran.status, ran.output) == (2, "")
    assert ran.errors.startswith("ticketd: --token-file: the file ")


def test_a_reader_that_has_enough_ends_it_quietly(server: TicketServer) -> None:
    taking = subprocess.Popen(
        command_line("take", "photos", "-n", 200_000, "--url", server.url),
        cwd=REPOSITORY,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert taking.stdout is not None
    assert taking.stderr is not None
    assert int(taking.stdout.readline()) > 0
    taking.stdout.close()
    errors = taking.stderr.read()
    taking.stderr.close()
    assert (taking.wait(60), errors) == (141, "")


class _Stranger(BaseHTTPRequestHandler):
    """A server that is no ticket server."""

    def do_POST(self) -> None:
        if self.path.startswith("/ticket/elsewhere"):
            self.send_response(307)
            self.send_header("Location", f"http://{self.headers['Host']}/ticket/photos")
            self.end_headers()
            return
        body = b"<html>" if self.path.startswith("/ticket/html") else json.dumps({"ids": ["1"]}).encode()
        self.send_response(502 if self.path.startswith("/ticket/broken") else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def stranger() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Stranger) as strange:
        threading.Thread(target=strange.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{strange.server_port}"
        strange.shutdown()


@pytest.mark.parametrize(
    ("sequence", "says"),
    [
        ("html", "did not answer with JSON: is it a ticket server?"),
        ("photos", "did not answer with 1 tickets: is it a ticket server?"),
        ("broken", "502: Bad Gateway"),
        ("elsewhere", "307: Temporary Redirect"),
    ],
)
def test_what_is_no_ticket_server(stranger: str, sequence: str, says: str) -> None:
    ran = forked_ticketd("take", sequence, "--url", stranger)
    assert (ran.status, ran.output) == (1, "")
    assert says in ran.errors
    assert ran.errors.count("\n") == 1


def test_a_server_that_hangs_up(tmp_path: Path) -> None:
    class HangUp(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)

    with socketserver.TCPServer(("127.0.0.1", 0), HangUp) as rude:
        threading.Thread(target=rude.serve_forever, daemon=True).start()
        ran = forked_ticketd("take", "photos", "--url", f"http://127.0.0.1:{rude.server_address[1]}")
        rude.shutdown()
    assert (ran.status, ran.output) == (1, "")
    assert ran.errors.startswith("ticketd: no answer from ")
    assert ran.errors.count("\n") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_tickets_of_every_kind_are_taken(server: TicketServer, new_name: Callable[[], str], kind: str) -> None:
    name = new_name()
    assert server.put(f"/sequence/{name}", json={"kind": kind}).status == 201
    ran = forked_ticketd("take", name, "-n", 5, "--url", server.url)
    assert (ran.status, ran.errors, len(set(ran.lines))) == (0, "", 5)
    for line in ran.lines:
        assert server.get(f"/decode/{name}/{line}").status == 200
    if kind != "ticket":
        ran = forked_ticketd("bump", name, "--above", 1000, "--url", server.url)
        assert (ran.status, ran.output) == (1, "")
        assert ran.errors == f"ticketd: 409: {name} is of kind {kind}, which cannot be advanced above a number\n"


def test_more_than_there_are_for_one_moment_are_refused(server: TicketServer, new_name: Callable[[], str]) -> None:
    name = new_name()
    server.put(f"/sequence/{name}", json={"kind": "instagram32"})
    ran = forked_ticketd("take", name, "-n", 1000, "--url", server.url)
    assert (ran.status, ran.output) == (1, "")
    assert ran.errors.startswith(f"ticketd: 422: {name} gives 16 ids at once at the most: count is 1000")


# --- bump ----------------------------------------------------------------------------------------------------------


def test_bump_above_a_number(server: TicketServer, new_name: Callable[[], str]) -> None:
    name = new_name()
    server.put(f"/sequence/{name}", json={"bits": 32})
    ran = ticketd("bump", name, "--above", 1000, "--url", server.url)
    assert (ran.status, ran.errors) == (0, "")
    assert ran.lines[0] == f"{name}: every ticket from now on is larger than 1000"
    assert {server.ticket(name) > 1000 for _ in range(4)} == {True}
    ran = forked_ticketd("bump", name, "--above", 5, "--url", server.url)
    assert ran.status == 0
    assert server.ticket(name) > 1000


def test_bump_wants_force_near_the_end(server: TicketServer, new_name: Callable[[], str]) -> None:
    name = new_name()
    server.put(f"/sequence/{name}", json={"bits": 32})
    ran = forked_ticketd("bump", name, "--above", 4_200_000_000, "--url", server.url)
    assert (ran.status, ran.output) == (1, "")
    assert ran.errors.startswith(f"ticketd: 409: bumping {name} above 4200000000 uses more than 90%")
    ran = forked_ticketd("bump", name, "--above", 4_200_000_000, "--force", "--url", server.url)
    assert (ran.status, ran.errors) == (0, "")
    assert server.ticket(name) > 4_200_000_000


def test_bump_wants_an_admin_token(guarded: TicketServer, token_file: Callable[[str], Path]) -> None:
    arguments = ("bump", "photos", "--above", 7, "--url", guarded.url, "--token-file")
    assert forked_ticketd(*arguments, token_file(TOKEN)).errors.startswith("ticketd: 403: ")
    assert forked_ticketd(*arguments, token_file(f"{TOKEN}-admin")).status == 0


@pytest.fixture
def old_table(fresh_schema: Schema) -> str:
    """The URL, without a password, of an auto-increment table whose last row was deleted: 1, 4, and once 300."""
    fresh_schema.execute(
        0, "CREATE TABLE `old photos` (`id` INT NOT NULL AUTO_INCREMENT PRIMARY KEY, name VARCHAR(20))"
    )
    fresh_schema.execute(0, "INSERT INTO `old photos` (id, name) VALUES (1, 'a'), (4, 'b'), (300, 'c')")
    fresh_schema.execute(0, "DELETE FROM `old photos` WHERE id = 300")
    database = fresh_schema.pair.odd
    return f"mysql://ticketd@127.0.0.1:{database.port}/{fresh_schema.name}/old%20photos.id"


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    return file


def test_bump_above_what_an_old_table_has_used(
    server: TicketServer, new_name: Callable[[], str], old_table: str, password_file: Path
) -> None:
    name = new_name()
    server.put(f"/sequence/{name}")
    ran = forked_ticketd("bump", name, "--from", old_table, "--from-password-file", password_file, "--url", server.url)
    assert (ran.status, ran.errors) == (0, "")
    assert ran.lines[0].endswith("/old photos.id: the largest number is 4, and its counter has given 300")
    assert PASSWORD not in ran.output
    assert server.ticket(name) > 300

    with_password = old_table.replace("ticketd@", f"ticketd:{PASSWORD}@")
    ran = forked_ticketd("bump", name, "--from", with_password, "--url", server.url)
    assert (ran.status, ran.errors) == (0, "")
    assert PASSWORD not in ran.output


def test_a_column_that_its_table_does_not_count(
    server: TicketServer, new_name: Callable[[], str], old_table: str, password_file: Path, fresh_schema: Schema
) -> None:
    fresh_schema.execute(0, "ALTER TABLE `old photos` ADD COLUMN `n``th` BIGINT UNSIGNED")
    source = old_table.replace(".id", ".n%60th")
    name = new_name()
    server.put(f"/sequence/{name}")
    arguments = ("bump", name, "--from", source, "--from-password-file", password_file, "--url", server.url)
    assert forked_ticketd(*arguments).lines[0].endswith("the largest number is 0")
    fresh_schema.execute(0, "UPDATE `old photos` SET `n``th` = 9007199254740993 WHERE id = 4")
    assert forked_ticketd(*arguments).lines[0].endswith("the largest number is 9007199254740993")
    assert server.ticket(name) > 9007199254740993


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("photos.id", "nothing.id"), "has no table old nothing in "),
        (("photos.id", "photos.no"), "has no column no in old photos"),
        (("photos.id", "photos.name"), "holds no whole numbers in name"),
        (("ticketd@", "ticketd:wrong@"), "refuses the user or password"),
    ],
)
def test_a_table_that_cannot_be_read(
    server: TicketServer, old_table: str, password_file: Path, change: tuple[str, str], says: str
) -> None:
    secret = ("--from-password-file", password_file) if "wrong" not in change[1] else ()
    ran = forked_ticketd("bump", "photos", "--from", old_table.replace(*change), *secret, "--url", server.url)
    assert (ran.status, ran.output) == (1, ""), ran
    assert ran.errors.startswith("ticketd: --from: 127.0.0.1:")
    assert says in ran.errors
    assert ran.errors.count("\n") == 1


def test_a_url_that_names_no_table() -> None:
    ran = forked_ticketd("bump", "photos", "--from", f"mysql://u:{PASSWORD}@127.0.0.1/photos.id")
    assert (ran.status, ran.output) == (2, "")
    assert ran.errors.startswith("ticketd: --from: ")
    assert "mysql://user:password@host:port/database/table.column" in ran.errors
    assert PASSWORD not in ran.errors


def test_nothing_of_the_outside_gets_into_the_tests() -> None:
    assert not any(name.startswith("TICKETS_") for name in clean_environment())
    assert os.environ.keys() >= clean_environment().keys()
