"""The commands that ask a running ticket server: take, bump, create, list and show."""

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from app.commands.server_connection import Refused, ServerConnection
from app.errors import SettingsError, TicketError
from app.kinds.table import KINDS

if TYPE_CHECKING:
    from rich.table import Table  # imported where a table is made: the server has no use for its memory

URL, TOKEN_FILE = "TICKETD_URL", "TICKETD_TOKEN_FILE"
DEFAULT_URL = "http://127.0.0.1:8000"
LIST, BLOCK, PAGE = 1_000, 10_000, 1_000
"""Of one request: tickets in a list, tickets in a block, sequences."""
MANY = 20 * LIST
"""From so many tickets on, a terminal shows how far the command is."""
_ID = re.compile("[0-9A-Za-z-]{1,36}")

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
    is_shown = n >= MANY and sys.stderr.isatty() and not sys.stdout.isatty()
    with _server(url, token_file) as server:
        pieces = _tickets(server, _name(sequence), n)
        for ids in _tracked(pieces, n) if is_shown else pieces:
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
        _, found = server.ask("POST", f"/sequence/{_name(sequence)}/bump", body)
    print(f"{found.get('sequence', sequence)}: every ticket from now on is larger than {above}")


def create(  # noqa: PLR0917  one argument for each flag
    sequence: Sequence,
    kind: Annotated[str | None, typer.Option(metavar="KIND", help=f"{', '.join(KINDS)}; without it, ticket.")] = None,
    bits: Annotated[int | None, typer.Option(metavar="N", help="ticket: 32, 53 or 64; without it, 64.")] = None,
    start: Annotated[int | None, typer.Option(metavar="N", help="ticket: the first ticket is at least this.")] = None,
    epoch: Annotated[
        int | None, typer.Option(metavar="MS", help="Where the ids' time begins, in ms since 1970.")
    ] = None,
    shards: Annotated[int | None, typer.Option(metavar="N", help="instagram, instagram32: how many shards.")] = None,
    random_bits: Annotated[int | None, typer.Option(metavar="N", help="simpleflake: how many random bits.")] = None,
    as_json: AsJSON = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Make a sequence, unless it exists with these parameters."""
    named = {"kind": kind, "bits": bits, "start": start, "epoch": epoch, "shards": shards, "random_bits": random_bits}
    body = {name: value for name, value in named.items() if value is not None}
    with _server(url, token_file) as server:
        status, found = server.ask("PUT", f"/sequence/{_name(sequence)}", body, accepted=(200, 201))
    if as_json:
        _print_json(found)
    else:
        print(f"{found.get('sequence', sequence)}: {'made' if status == 201 else 'exists already'}")
        _print_sequence(found)


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
    table = _table("SEQUENCE", "KIND", "BITS", "LAST", "HEADROOM")
    for each in found:
        on = [database for database in each.get("databases") or () if each.get("kind") == "ticket"]
        last = [database["last"] for database in on if database.get("last") is not None]
        left = [database["headroom"] for database in on if database.get("headroom") is not None]
        table.add_row(
            *_cells(each, "sequence", "kind", "bits"), _text(max(last, default=None)), _text(sum(left) or None)
        )
    _print_table(table)


def show(sequence: Sequence, as_json: AsJSON = False, url: Url = None, token_file: TokenFile = None) -> None:
    """Show a sequence, and where it stands on each ticket database."""
    with _server(url, token_file) as server:
        _, found = server.ask("GET", f"/sequence/{_name(sequence)}")
    if as_json:
        _print_json(found)
    else:
        print(found.get("sequence", sequence))
        _print_sequence(found)


def _server(url: str | None, token_file: str | None) -> ServerConnection:
    """Return a connection to the server that the flags name, or else the variables. Raises SettingsError."""
    address, source = _given(url, "--url", URL)
    path, token_source = _given(token_file, "--token-file", TOKEN_FILE)
    token = None if path is None else _token(path, token_source)
    return ServerConnection(DEFAULT_URL if address is None else address, token, source)


def _given(value: str | None, flag: str, variable: str) -> tuple[str | None, str]:
    """Return the value of the flag or of the variable, None where neither is set, and the name of which it is."""
    source = flag if value is not None or variable not in os.environ else variable
    text = os.environ.get(variable) if value is None else value
    if text is not None and not text.strip():
        raise SettingsError(f"{source} is set and empty; expected a value, or leave it out")
    return text, source


def _token(path: str, source: str) -> str:
    try:
        token = Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else "not ASCII"
        raise SettingsError(f"{source}: the file cannot be read ({reason}); expected a file with a token") from error
    if not token or not token.isprintable() or " " in token:
        raise SettingsError(f"{source}: expected a file with one token")
    return token


def _name(sequence: str) -> str:
    if not sequence.isascii() or not sequence.replace("_", "a").isalnum():
        raise SettingsError("a sequence's name is 1 to 64 letters, digits and underscores, a letter first")
    return sequence


def _of(found: Mapping[str, Any], key: str, kind: type) -> Any:
    """Return a value of an answer. Raises TicketError where the answer has none of this type."""
    value = found.get(key)
    if not isinstance(value, kind):
        raise TicketError(f"the server's answer has no {key}: is it a ticket server?")
    return value


def _tickets(server: ServerConnection, name: str, n: int) -> Iterator[list[str]]:
    """Yield n tickets in pieces: in blocks if there are many and the kind has blocks, else in lists.

    Near its end a sequence refuses a large piece, and still has smaller ones.
    """
    most = BLOCK
    while n > 0:
        size = min(n, most)
        try:
            ids = _block(server, name, size) if size > LIST else _list(server, name, size)
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


def _tracked(pieces: Iterator[list[str]], n: int) -> Iterator[list[str]]:
    """Yield the pieces, and show on standard error how many of the n tickets that makes."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("tickets", total=n)
        for ids in pieces:
            yield ids
            progress.advance(task, len(ids))


def _list(server: ServerConnection, name: str, count: int) -> list[str]:
    _, found = server.ask("POST", f"/ticket/{name}?count={count}")
    ids: list[str] = _of(found, "ids_str", list)
    if len(ids) != count or not all(isinstance(each, str) and _ID.fullmatch(each) for each in ids):
        raise TicketError(f"the server's answer does not have {count} tickets: is it a ticket server?")
    return ids


def _block(server: ServerConnection, name: str, size: int) -> list[str]:
    _, found = server.ask("POST", f"/block/{name}?size={size}")
    first, step = _of(found, "first", int), _of(found, "step", int)
    if found.get("size") != size or first < 1 or step < 1:
        raise TicketError(f"the server's answer is no block of {size} tickets: is it a ticket server?")
    return [str(first + step * place) for place in range(size)]


def _pages(server: ServerConnection, search: str) -> Iterator[dict[str, Any]]:
    """Yield the sequences of all pages."""
    after: str | None = ""
    while after is not None:
        place = f"&after={after}" if after else ""
        _, found = server.ask("GET", f"/sequence?limit={PAGE}&search={quote(search)}{place}")
        yield from _of(found, "sequences", list)
        following = found.get("next")
        after = _name(following) if following else None


def _print_json(found: Mapping[str, Any]) -> None:
    print(json.dumps(found, separators=(",", ":")))


def _print_sequence(found: Mapping[str, Any]) -> None:
    for key, value in found.items():
        if key not in {"sequence", "databases"} and not key.endswith("_str"):
            print(f"  {key.replace('_', ' ')}: {_text(value)}")
    keys = "name", "offset", "status", "last", "headroom"
    table = _table(*(key.upper() for key in ("database", *keys[1:])))
    for each in found.get("databases") or ():
        table.add_row(*_cells(each, *keys))
    if table.row_count:
        _print_table(table)


def _cells(found: Mapping[str, Any], *keys: str) -> Iterator[str]:
    return (_text(found.get(key)) for key in keys)


def _text(value: object) -> str:
    shown = "-" if value is None else "yes" if value is True else "no" if value is False else str(value)
    return "".join(sign if sign.isprintable() else "?" for sign in shown)


def _table(*heads: str) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="")
    for head in heads:
        table.add_column(
            head, no_wrap=True, justify="right" if head in {"BITS", "LAST", "HEADROOM", "OFFSET"} else "left"
        )
    return table


def _print_table(table: "Table") -> None:
    """Print a table whose columns are the same in a pipe, whatever its width."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else 1_000
    Console(width=width, highlight=False, markup=False, soft_wrap=True).print(table)
