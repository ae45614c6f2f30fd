"""The commands that ask a running ticket server: take, bump, create, list and show."""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from app.commands.options import Bits, Epoch, Kind, RandomBits, Shards
from app.commands.server_connection import Refused, ServerConnection, printable
from app.errors import SettingsError, TicketError
from app.setting_names import check_names
from app.tickets.definitions import key_of

URL, TOKEN_FILE = "TICKETD_URL", "TICKETD_TOKEN_FILE"
DEFAULT_URL = "http://127.0.0.1:8000"
LIST, BLOCK, PAGE = 1_000, 10_000, 1_000
"""Of one request: tickets in a list, tickets in a block, sequences."""
_ID = re.compile("[0-9A-Za-z][0-9A-Za-z-]{0,35}")

Sequence = Annotated[str, typer.Argument(metavar="SEQUENCE", help="The sequence's name, in any case.")]
Url = Annotated[
    str | None,
    typer.Option(help=f"The ticket server, or the load balancer before several. [{URL}; default {DEFAULT_URL}]"),
]
TokenFile = Annotated[str | None, typer.Option(metavar="FILE", help=f"A file with the bearer token. [{TOKEN_FILE}]")]
AsJSON = Annotated[bool, typer.Option("--json", help="Print the server's answer as JSON, on one line.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands to a command line."""
    for command in (take, bump, create, list_, show):
        app.command(command.__name__.rstrip("_"))(command)


def take(
    sequence: Sequence,
    n: Annotated[int, typer.Option("-n", min=1, metavar="N", help="How many tickets.")] = 1,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Print tickets of a sequence, one a line. If it fails, the tickets that it has printed are drawn and valid."""
    with _server(url, token_file) as server:
        for ids in _tickets(server, key_of(sequence), n):
            print(*ids, sep="\n", flush=True)


def bump(
    sequence: Sequence,
    above: Annotated[int, typer.Option(min=0, metavar="N", help="Every later ticket is larger than N.")],
    force: Annotated[
        bool, typer.Option("--force", help="Even if that uses up more than 90 % of the sequence.")
    ] = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Advance a sequence above a number, on every ticket database. A smaller number changes nothing."""
    body = {"above": str(above), "force": force}
    with _server(url, token_file) as server:
        _, found = server.ask("POST", f"/sequence/{key_of(sequence)}/bump", body)
    print(printable(f"{found.get('sequence')}: every ticket from now on is larger than {above}"))


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
    with _server(url, token_file) as server:
        status, found = server.ask("PUT", f"/sequence/{key_of(sequence)}", body, accepted=(200, 201))
    _print_sequence(found, f"{found.get('sequence')}: {'made' if status == 201 else 'exists already'}", as_json)


def list_(
    search: Annotated[str, typer.Argument(metavar="SEARCH", help="Part of the names, in any case.")] = "",
    as_json: AsJSON = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """List the sequences, sorted by name."""
    with _server(url, token_file) as server:
        found = list(_pages(server, search))
    if as_json:
        _print_json({"sequences": found})
        return
    rows = []
    for each in found:
        on = [database for database in each.get("databases") or () if each.get("kind") == "ticket"]
        last = [database["last"] for database in on if database.get("last") is not None]
        left = [database["headroom"] for database in on if database.get("headroom") is not None]
        rows.append(each | {"last": max(last, default=None), "headroom": sum(left) or None})
    _print_table(rows, "sequence", "kind", "bits", "last", "headroom")


def show(sequence: Sequence, as_json: AsJSON = False, url: Url = None, token_file: TokenFile = None) -> None:
    """Show a sequence, and where it stands on each ticket database."""
    with _server(url, token_file) as server:
        _, found = server.ask("GET", f"/sequence/{key_of(sequence)}")
    _print_sequence(found, f"{found.get('sequence')}", as_json)


def _server(url: str | None, token_file: str | None) -> ServerConnection:
    """Return a connection to the server that the flags name, or else the variables. Raises SettingsError."""
    address, source = _given(url, "--url", URL)
    path, token_source = _given(token_file, "--token-file", TOKEN_FILE)
    token = None if path is None else _token(path, token_source)
    return ServerConnection(DEFAULT_URL if address is None else address, token, source)


def _given(value: str | None, flag: str, variable: str) -> tuple[str | None, str]:
    """Return the value of the flag or of the variable, None where neither is set, and the name of which it is."""
    source = flag
    if value is None:
        check_names(os.environ, (URL, TOKEN_FILE), "TICKETD_")
        value, source = os.environ.get(variable), variable
    if value is not None and not value.strip():
        raise SettingsError(f"{source} is set and empty; expected a value, or leave it out")
    return value, source


def _token(path: str, source: str) -> str:
    try:
        token = Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else "not ASCII"
        raise SettingsError(f"{source}: the file cannot be read ({reason}); expected a file with a token") from error
    if not token or not token.isprintable() or " " in token:
        raise SettingsError(f"{source}: expected a file with one token")
    return token


def _tickets(server: ServerConnection, name: str, n: int) -> Iterator[list[str]]:
    """Yield n tickets in pieces: in blocks if there are many and the kind has blocks, else in lists.

    Near its end a sequence refuses a large piece, and still has smaller ones.
    """
    most = BLOCK
    while n > 0:
        size = min(n, most)
        try:
            ids = _piece(server, name, size)
        except Refused as refused:
            if refused.says == "exhausted" and size > 1:
                most = size // 2
            elif refused.says in {"conflict", "invalid"} and size > LIST:
                most = LIST
            else:
                raise
        else:
            yield ids
            n -= size


def _piece(server: ServerConnection, name: str, size: int) -> list[str]:
    """Return the tickets of one request. Raises TicketError where the answer has others than were asked for."""
    is_list = size <= LIST
    _, found = server.ask("POST", f"/ticket/{name}?count={size}" if is_list else f"/block/{name}?size={size}")
    try:
        ids = found["ids_str"] if is_list else [str(found["first"] + found["step"] * place) for place in range(size)]
        if not isinstance(ids, list) or len(set(ids)) != size or not all(map(_ID.fullmatch, ids)):
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise TicketError(f"the server's answer does not have {size} tickets: is it a ticket server?") from None
    return ids


def _pages(server: ServerConnection, search: str) -> Iterator[dict[str, Any]]:
    """Yield the sequences of all pages."""
    after: str | None = ""
    while after is not None:
        place = f"&after={quote(str(after))}" if after else ""
        _, found = server.ask("GET", f"/sequence?limit={PAGE}&search={quote(search)}{place}")
        if not isinstance(found.get("sequences"), list):
            raise TicketError("the server's answer has no sequences: is it a ticket server?")
        yield from found["sequences"]
        after = found.get("next")


def _print_json(found: Mapping[str, Any]) -> None:
    print(json.dumps(found, separators=(",", ":")))


def _print_sequence(found: Mapping[str, Any], head: str, as_json: bool) -> None:
    if as_json:
        _print_json(found)
        return
    print(printable(head))
    for key, value in found.items():
        if key not in {"sequence", "databases"} and not key.endswith("_str"):
            print(f"  {key.replace('_', ' ')}: {_text(value)}")
    rows = [{"database": each.get("name"), **each} for each in found.get("databases") or ()]
    if rows:
        _print_table(rows, "database", "offset", "status", "last", "headroom")


def _text(value: object) -> str:
    return printable(
        "-" if value is None else {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
    )


def _print_table(rows: Iterable[Mapping[str, Any]], *keys: str) -> None:
    """Print a table whose columns are the same in a pipe, whatever its width."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="")
    for key in keys:
        is_number = key in {"bits", "last", "headroom", "offset"}
        table.add_column(key.upper(), no_wrap=True, justify="right" if is_number else "left")
    for row in rows:
        table.add_row(*(_text(row.get(key)) for key in keys))
    width = None if sys.stdout.isatty() else 1_000
    Console(width=width, highlight=False, markup=False, soft_wrap=True).print(table)
