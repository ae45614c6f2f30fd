"""The commands that ask a running ticket server: take, bump, create, list and show."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

import typer
from rich.console import Console
from rich.table import Table

from app.errors import TicketError
from app.kinds.table import KINDS
from app.settings import Flag, check_names
from app.tickets.definitions import key_of

URL = Flag("url", "--url", "TICKETD_URL", "http://host:port or https://host, without a user or a password")
TOKEN = Flag("token", "--token-file", "TICKETD_TOKEN", "one token")
DEFAULT_URL = "http://127.0.0.1:8000"
SECONDS = 10.0
"""How long a command waits for an answer."""
MOST = 1_000
"""Tickets or sequences of one request."""
MOST_BYTES = 32 * 1024 * 1024
"""How much of an answer is read: a page of 1,000 sequences takes one to two kilobytes for each."""
LONGEST_SHOWN = 400
"""Characters of a foreign text that an error repeats."""
STRANGER = "is it a ticket server?"
_URL = re.compile(r"https?://[^\s@?#]+", re.IGNORECASE)
_ID = re.compile("[0-9A-Za-z][0-9A-Za-z-]{0,35}")

Kind = Annotated[str | None, typer.Option(metavar="KIND", help=f"{', '.join(KINDS)}.")]
Bits = Annotated[int | None, typer.Option(metavar="N", help="ticket: 32, 53 or 64; without it, 64.")]
Epoch = Annotated[int | None, typer.Option(metavar="MS", help="Where the ids' time begins, in ms since 1970.")]
Shards = Annotated[int | None, typer.Option(metavar="N", help="instagram, instagram32: how many shards.")]
RandomBits = Annotated[int | None, typer.Option(metavar="N", help="simpleflake: how many random bits.")]
Sequence = Annotated[str, typer.Argument(metavar="SEQUENCE", help="The sequence's name, in any case.")]
Url = Annotated[
    str | None, typer.Option(help=f"The server, or the load balancer before several. [TICKETD_URL; {DEFAULT_URL}]")
]
TokenFile = Annotated[str | None, typer.Option(metavar="FILE", help="Holds the bearer token. [TICKETD_TOKEN_FILE]")]
AsJSON = Annotated[bool, typer.Option("--json", help="Print the server's answer as JSON, on one line.")]


class Server:
    """The ticket server that a command asks. It uses no proxy and follows no redirect, so nobody else gets the token.

    url, token_file: what the command line says, None where a variable or the default counts. Raises SettingsError.
    """

    def __init__(self, url: str | None, token_file: str | None) -> None:
        check_names(os.environ, {"TICKETD_URL", "TICKETD_TOKEN_FILE"}, "TICKETD_")
        found = URL.find(os.environ, url) or URL._replace(source=URL.variable, said=DEFAULT_URL)
        self._url, self._token, token = found.text(), "", TOKEN.find(os.environ, token_file)
        try:
            self._parts = parts = urlsplit(self._url)
            (parts.hostname or "").encode("idna")
            is_one = _URL.fullmatch(self._url) and self._url.isprintable() and parts.hostname and parts.port != 0
        except ValueError:
            is_one = False
        if not is_one:
            raise found.refusal(self._url)
        if token is not None:
            self._token = token.text()
            if len(self._token.split()) > 1 or not self._token.isprintable():
                raise token.refusal(self._token)

    def ask(self, method: str, path: str, body: Mapping[str, object] | None = None) -> tuple[int, dict[str, Any]]:
        """Send a request, and return the status and the JSON object of the answer.

        Raises TicketError, with one line, where the answer is not 200 or 201, or there is none.
        """
        parts = self._parts
        headers: dict[str, str | bytes] = {"Accept": "application/json", "Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}".encode()
        connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = connect(parts.hostname or "", parts.port, timeout=SECONDS)
        try:
            target = quote(parts.path.rstrip("/"), safe="/%") + path
            connection.request(method, target, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            content = response.read(MOST_BYTES)
        except (OSError, HTTPException, ValueError) as error:
            raise self._failure(f"no answer: {getattr(error, 'strerror', None) or error}") from error
        finally:
            connection.close()
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self._failure(f"answered {response.status} and no JSON object: {STRANGER}")
        if response.status not in {200, 201}:
            hint = "; --token-file FILE, or TICKETD_TOKEN_FILE, names a file with a token"
            why = f"{response.status}: {found.get('detail', STRANGER)}"
            raise self._failure(why, hint if response.status == 401 else "")
        return response.status, found

    def _failure(self, why: str, hint: str = "") -> TicketError:
        """Return an error that has the beginning of a text of the server, without the token, which it may send back."""
        text = why.replace(self._token, "[token]") if self._token else why
        return TicketError(f"{self._url}: {_printable(text[:LONGEST_SHOWN])}{hint}")


def take(
    sequence: Sequence,
    n: Annotated[int, typer.Option("-n", min=1, metavar="N", help="How many tickets.")] = 1,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Print tickets of a sequence, one a line. If it fails, the tickets that it has printed are drawn and valid."""
    server, name = Server(url, token_file), key_of(sequence)
    for taken in range(0, n, MOST):
        count = min(MOST, n - taken)
        _, found = server.ask("POST", f"/ticket/{name}?count={count}")
        ids = found.get("ids_str")
        if not isinstance(ids, list) or len(ids) != count or not all(_ID.fullmatch(str(each)) for each in ids):
            raise TicketError(f"the server's answer does not have {count} tickets: {STRANGER}")
        print(*ids, sep="\n", flush=True)


def bump(
    sequence: Sequence,
    above: Annotated[int, typer.Option(min=0, metavar="N", help="Every later ticket is larger than N.")],
    force: Annotated[bool, typer.Option("--force", help="Even if that uses up more than 90 %.")] = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Advance a sequence above a number, on every ticket database. A smaller number changes nothing."""
    body = {"above": str(above), "force": force}
    _, found = Server(url, token_file).ask("POST", f"/sequence/{key_of(sequence)}/bump", body)
    print(f"{_text(found.get('sequence'))}: every ticket from now on is larger than {above}")


def create(  # noqa: PLR0917  one argument for each flag
    sequence: Sequence,
    kind: Kind = None,
    bits: Bits = None,
    start: Annotated[int | None, typer.Option(metavar="N", help="ticket: the first ticket is at least this.")] = None,
    epoch: Epoch = None,
    shards: Shards = None,
    random_bits: RandomBits = None,
    as_json: AsJSON = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Make a sequence, unless it exists with these parameters."""
    named = {"kind": kind, "bits": bits, "start": start, "epoch": epoch, "shards": shards, "random_bits": random_bits}
    body = {name: value for name, value in named.items() if value is not None}
    status, found = Server(url, token_file).ask("PUT", f"/sequence/{key_of(sequence)}", body)
    _print_sequence(found, as_json, ": made" if status == 201 else ": exists already")


def list_(
    search: Annotated[str, typer.Argument(metavar="SEARCH", help="Part of the names, in any case.")] = "",
    as_json: AsJSON = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """List the sequences, sorted by name."""
    server, rows = Server(url, token_file), list[dict[str, Any]]()
    after: object = ""
    while after is not None:
        place = f"&after={quote(str(after))}" if after else ""
        _, found = server.ask("GET", f"/sequence?limit={MOST}&search={quote(search)}{place}")
        if not isinstance(found.get("sequences"), list):
            raise TicketError(f"the server's answer has no sequences: {STRANGER}")
        rows += found["sequences"]
        after = found.get("next")
    if as_json:
        print(json.dumps({"sequences": rows}, separators=(",", ":")))
        return
    for each in rows:
        on = each.get("databases") or ()
        each["last"] = max((one["last"] for one in on if one.get("last") is not None), default=None)
        each["headroom"] = sum(one.get("headroom") or 0 for one in on) or None
    _print_table(rows, "sequence", "kind", "bits", "last", "headroom")


def show(sequence: Sequence, as_json: AsJSON = False, url: Url = None, token_file: TokenFile = None) -> None:
    """Show a sequence, and where it stands on each ticket database."""
    _, found = Server(url, token_file).ask("GET", f"/sequence/{key_of(sequence)}")
    _print_sequence(found, as_json)


COMMANDS: dict[str, Callable[..., None]] = {"take": take, "bump": bump, "create": create, "list": list_, "show": show}


def _print_sequence(found: Mapping[str, Any], as_json: bool, done: str = "") -> None:
    """Print a sequence. done: what was done with it."""
    if as_json:
        print(json.dumps(found, separators=(",", ":")))
        return
    print(f"{_text(found.get('sequence'))}{done}")
    for key, value in found.items():
        if key not in {"sequence", "databases"} and not key.endswith("_str"):
            print(f"  {_printable(key.replace('_', ' '))}: {_text(value)}")
    if rows := [{"database": each.get("name"), **each} for each in found.get("databases") or ()]:
        _print_table(rows, "database", "offset", "status", "last", "headroom")


def _print_table(rows: Iterable[Mapping[str, Any]], *keys: str) -> None:
    """Print a table whose columns are the same in a pipe, whatever its width."""
    table = Table(box=None, pad_edge=False, header_style="")
    for key in keys:
        is_number = key in {"bits", "last", "headroom", "offset"}
        table.add_column(key.upper(), no_wrap=True, justify="right" if is_number else "left")
    for row in rows:
        table.add_row(*(_text(row.get(key)) for key in keys))
    width = None if sys.stdout.isatty() else 1_000
    Console(width=width, highlight=False, markup=False, soft_wrap=True).print(table)


def _text(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "-", True: "yes", False: "no"}[value]
    return _printable(str(value))


def _printable(text: str) -> str:
    """Return a text of the server on one line, without what a terminal would act on."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)
