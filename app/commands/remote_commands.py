"""The commands that ask a running ticket server: `take`, `bump`, `create`, `list`, `show`."""

import argparse
import asyncio
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from app.commands.remote import DEFAULT_URL, RemoteServer, connection_to, place_of
from app.commands.sequence_texts import of_list, of_sequence
from app.commands.server_connection import TOKEN_VARIABLE, URL_VARIABLE, RequestFailed
from app.commands.terminal import AddCommand, print_lines, secret_in, whole_number
from app.common.errors import SettingsError, TicketDatabaseError, TicketError
from app.databases import engines
from app.kinds.kind import Parameter
from app.kinds.table import KINDS

_ASKS = f"""
The server and the token come from --url and --token-file or, without them, from {URL_VARIABLE} and {TOKEN_VARIABLE}.

exit status: 0; 1 where the server refused or could not be reached; 2 for unusable arguments
"""
_TAKE = f"""
examples:
  ticketd take photos                    one ticket
  ticketd take photos -n 5000 > ids      five thousand, one per line
  ticketd take photos --url https://tickets.example.net --token-file ~/.ticket-token

If it fails, the tickets that it has printed are valid.
{_ASKS}"""
_BUMP = f"""
examples:
  ticketd bump photos --above 1000000
      every ticket from now on is larger than 1,000,000
  ticketd bump photos --from {engines.EXAMPLE.example_source} --from-password-file ./password
      larger than every id that this auto-increment table has used (stop what writes to it first)

A bump never goes backwards: a smaller number changes nothing. It requires every ticket database to be up, and is safe
while tickets are being drawn. If the server has tokens, it requires an admin token. It may be repeated.
{_ASKS}"""
_CREATE = f"""
examples:
  ticketd create photos                            plain tickets of 64 bits
  ticketd create photos --bits 32 --start 1000     of 32 bits, from 1000 on
  ticketd create likes --kind instagram --shards 2000

A sequence that exists with these parameters is left unchanged. If the server has tokens, it requires an admin token.
{_ASKS}"""
_LIST = f"""
examples:
  ticketd list                           all sequences
  ticketd list photo                     those with photo in their names, in upper or lower case
  ticketd list | awk '$5 < 1000000'      few tickets left: the columns are the same in a pipe
  ticketd list --json | jq -r '.sequences[].sequence'

LAST is the largest ticket known to be drawn, HEADROOM how many are left on all ticket databases together; "-" where
there is none. Only WARNINGS, at the end of a line, holds spaces.
{_ASKS}"""
_SHOW = f"""
examples:
  ticketd show photos
  ticketd show photos --json
{_ASKS}"""


def add_commands(command: AddCommand) -> None:
    """Add the commands to the command line."""
    take = command("take", "print tickets from a server", "Print tickets, one a line, from a ticket server.", _TAKE)
    take.add_argument("sequence", metavar="SEQUENCE", help="the sequence, for instance photos")
    take.add_argument("-n", dest="number", metavar="N", type=whole_number(1), default=1, help="how many [default 1]")
    _add_server(take)
    take.set_defaults(run=_take)

    bump = command(
        "bump",
        "advance a sequence",
        "Advance a sequence above a number, or above what an auto-increment table has used.",
        _BUMP,
    )
    bump.add_argument("sequence", metavar="SEQUENCE", help="the sequence to advance")
    above = bump.add_mutually_exclusive_group(required=True)
    above.add_argument("--above", metavar="N", type=whole_number(0), help="every later ticket is larger than N")
    above.add_argument(
        "--from",
        dest="source",
        metavar="URL",
        help=f"{engines.SOURCE_FORM}: every later ticket is larger than what that "
        "column holds and its counter has given; it is only read. Other users of this machine can see a command line: "
        "leave the password out and use --from-password-file",
    )
    bump.add_argument("--from-password-file", metavar="FILE", help="a file with the password for --from")
    bump.add_argument("--force", action="store_true", help="even if it uses up more than 90 %% of the sequence")
    _add_server(bump)
    bump.set_defaults(run=_bump)

    create = command("create", "create a sequence", "Create a sequence, unless it exists.", _CREATE)
    create.add_argument("sequence", metavar="SEQUENCE", help="the sequence to create")
    create.add_argument("--kind", metavar="KIND", choices=tuple(KINDS), help=f"{', '.join(KINDS)} [default ticket]")
    for name in _PARAMETERS:
        _add_parameter(create, name)
    _add_json(create)
    _add_server(create)
    create.set_defaults(run=_create)

    list_ = command("list", "list the sequences", "List the sequences, sorted by name.", _LIST)
    list_.add_argument("search", metavar="SEARCH", nargs="?", default="", help="part of a name, in upper or lower case")
    _add_json(list_)
    _add_server(list_)
    list_.set_defaults(run=_list)

    show = command("show", "show a sequence", "Show a sequence and where it stands on each ticket database.", _SHOW)
    show.add_argument("sequence", metavar="SEQUENCE", help="the sequence to show")
    _add_json(show)
    _add_server(show)
    show.set_defaults(run=_show)


_PARAMETERS = tuple(dict.fromkeys(name for kind in KINDS.values() for name in kind.parameters))
_MEANINGS = {
    "bits": "the length of an id",
    "start": "the first ticket is at least this",
    "epoch": "when the time in the ids begins, in milliseconds since 1970",
    "shards": "how many shards there are",
    "random_bits": "how many bits of an id are random",
}


def _add_parameter(create: argparse.ArgumentParser, name: str) -> None:
    """A flag for a parameter that some kinds have. The server judges its value, but for the choices of a few."""
    of = {kind.name: kind.parameters[name] for kind in KINDS.values() if name in kind.parameters}
    choices = sorted({choice for parameter in of.values() for choice in parameter.choices})
    described = ", ".join(f"{kind}{_default(parameter)}" for kind, parameter in of.items())
    create.add_argument(
        "--" + name.replace("_", "-"),
        dest=name,
        metavar="N",
        type=whole_number(0),
        choices=choices or None,
        help=f"{_MEANINGS.get(name, name)}; of {described}",
    )


def _default(parameter: Parameter) -> str:
    return " [default: now]" if parameter.default is None else f" [default {parameter.default}]"


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the server's answer as JSON, on one line")


def _add_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", help="the ticket server, or the load balancer in front of several "
                        f"[{URL_VARIABLE}; default {DEFAULT_URL}]")  # fmt: skip
    parser.add_argument("--token-file", metavar="FILE", help=f"a file with the bearer token [{TOKEN_VARIABLE}]")


@contextmanager
def _remote(arguments: argparse.Namespace) -> Iterator[RemoteServer]:
    with closing(connection_to(place_of(arguments.url, arguments.token_file, os.environ))) as connection:
        yield RemoteServer(connection)


# --- take, bump ----------------------------------------------------------------------------------------------------


def _take(arguments: argparse.Namespace) -> None:
    with _remote(arguments) as server:
        for ids in server.take(arguments.sequence, arguments.number):
            print_lines(ids)


def _bump(arguments: argparse.Namespace) -> None:
    with _remote(arguments) as server:
        above = arguments.above
        if arguments.source is not None:
            above = _last_used(arguments.source, arguments.from_password_file)
        answer = server.bump(arguments.sequence, above, force=arguments.force)
    print_lines([f"{arguments.sequence}: every ticket from now on is larger than {above}"])
    print_lines(
        f"  {each.get('name')}: last id {each.get('last')}"
        for each in answer.get("databases", [])
        if isinstance(each, dict)
    )


def _last_used(source: str, password_file: str | None) -> int:
    password = None if password_file is None else secret_in("--from-password-file", password_file)
    try:
        column = engines.read_source(source, password)
        used = asyncio.run(column.used())
    except TicketDatabaseError as error:
        raise TicketError(f"--from: {column.server} {error}") from error
    except SettingsError as error:
        raise SettingsError(f"--from: {error}") from error
    counted = f", and its counter has given {used.counted}" if used.counted > used.largest else ""
    print_lines([f"{column.name}: the largest number is {used.largest}{counted}"])
    return used.last


# --- create, list, show --------------------------------------------------------------------------------------------


def _create(arguments: argparse.Namespace) -> None:
    given = {name: value for name in ("kind", *_PARAMETERS) if (value := getattr(arguments, name)) is not None}
    with _remote(arguments) as server:
        created, found = server.create(arguments.sequence, given)
    if arguments.json:
        _print_json(found)
        return
    print_lines([f"{arguments.sequence}: {'created' if created else 'exists already'}", *of_sequence(found)])


def _list(arguments: argparse.Namespace) -> None:
    with _remote(arguments) as server:
        found = server.matching(arguments.search)
        warnings = () if arguments.json else _warnings(server)
    if arguments.json:
        _print_json(found)
    else:
        print_lines(of_list(found["sequences"], warnings))


def _show(arguments: argparse.Namespace) -> None:
    with _remote(arguments) as server:
        found = server.show(arguments.sequence)
        warnings = () if arguments.json else _warnings(server)
    if arguments.json:
        _print_json(found)
    else:
        print_lines([arguments.sequence, *of_sequence(found, warnings)])


def _warnings(server: RemoteServer) -> Iterable[Mapping[str, Any]]:
    """The server's warnings; none if a load balancer keeps /healthz to itself."""
    try:
        return server.warnings()
    except RequestFailed:
        return ()


def _print_json(answer: Mapping[str, Any]) -> None:
    print_lines([json.dumps(answer, separators=(",", ":"))])
