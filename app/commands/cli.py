"""`ticketd`: the commands."""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Mapping

from app.clients.open_files import raise_limit
from app.commands import kinds
from app.commands.remote import DEFAULT_URL, RemoteServer
from app.common import log as logging_setup
from app.common.errors import SettingsError, TicketDatabaseError, TicketError
from app.common.value_files import WatchedFiles, read_value
from app.common.version import VERSION
from app.setting_names import PREFIX
from app.settings import SECRETS, Flag, Settings, files_of, load, unknown_names

OK, FAILED, UNUSABLE, BROKEN_PIPE, INTERRUPTED = 0, 1, 2, 141, 130
"""Exit statuses; the last two as the shell gives them to a program that a signal ended."""

WATCHED = 4.0
"""The least time, in seconds, for which `grow` watches the databases for running ticket servers."""
INCREMENT_NAMES = ("TICKETS_INCREMENT", "TICKETS_INCREMENT_FILE")
"""What `grow` ignores in the environment: its flag sets the increment."""

_PROGRAM = """
examples:
  ticketd serve                          the server, on two embedded ticket databases in ./ticket-data
  ticketd take photos                    a ticket from it
  ticketd doctor                         check the ticket databases
  ticketd decode --kind ulid ID          what an id says
  ticketd COMMAND --help                 help on a command
"""
_SERVE = """
examples:
  ticketd serve
      two embedded ticket databases, odd and even, in ./ticket-data; tickets on http://127.0.0.1:8000
  TICKETS_DATABASES='mysql://tickets@db1/tickets mysql://tickets@db2/tickets' \\
  TICKETS_DATABASE_PASSWORD_FILE=/run/secrets/password ticketd serve
      two MySQL servers, the odd one first
  curl http://127.0.0.1:8000/ticket/photos
      a ticket; POST works too, and ?count=100 gives a hundred
"""
_TAKE = """
examples:
  ticketd take photos                    one ticket
  ticketd take photos -n 5000 > ids      five thousand, one per line
  ticketd take photos --url https://tickets.example.net --token-file ~/.ticket-token

exit status: 0; 1 where the server could not do it (tickets printed before that are valid); 2 for unusable arguments
"""
_BUMP = """
examples:
  ticketd bump photos --above 1000000
      every ticket from now on is larger than 1,000,000
  ticketd bump photos --from mysql://reader@db9/shop/photos.id --from-password-file ./password
      larger than every id that this auto-increment table has used (stop what writes to it first)

A bump never goes backwards: a smaller number changes nothing. It requires every ticket database to be up, and is safe
while tickets are being drawn. If the server has tokens, it requires an admin token.

exit status: 0; 1 where it could not be done (it may be repeated); 2 for unusable arguments
"""
_DOCTOR = """
examples:
  ticketd doctor
      with the environment and flags of `ticketd serve`: the same databases
  ticketd doctor | grep ^wrong
      only what is wrong, one line each, and how to fix it

Checks every ticket database. It draws nothing and changes nothing, and may run while servers run.

exit status: 0 if nothing is wrong; 1 if something would break a guarantee or slow the server down; 2 for settings
that cannot be used
"""


_GROW = """
examples:
  TICKETS_DATABASES='mysql://tickets@db1/tickets mysql://tickets@db2/tickets mysql://tickets@db3/tickets' \\
  TICKETS_DATABASE_PASSWORD_FILE=/run/secrets/password ticketd grow --increment 3
      from two databases to three

Steps:
  1. stop every ticket server, and end those that are frozen (a release before 0.2.0 would go on drawing)
  2. set auto_increment_increment=M on all databases, old and new, and restart them
  3. run this with the environment of the new ticket servers: their TICKETS_DATABASES, the new databases last
  4. start the new ticket servers, with TICKETS_INCREMENT unset or M

Advances every sequence on every database above everything ever drawn, then records the new ring. If it is
interrupted, run it again; no ticket server draws until it is done. With the ring's present increment it removes the
last databases from the ring, or confirms the ring as it is.

exit status: 0 when it is done; 1 if something has to be done first, which is printed; 2 for settings that cannot be
used
"""


def _add_settings(parser: argparse.ArgumentParser, without: tuple[str, ...] = ()) -> None:
    group = parser.add_argument_group(
        "settings",
        "Each is read from its flag, else from the environment variable in brackets, else from the file that this "
        "variable with _FILE names. A variable that is set and empty is an error.",
    )
    for name, field in Settings.model_fields.items():
        if name in without:
            continue
        flag = "--" + name.replace("_", "-") + ("-file" if name in SECRETS else "")
        variable = PREFIX + name.upper()
        default = "" if field.default in (None, ()) else f"; default {field.default}"
        group.add_argument(
            flag,
            dest=name,
            metavar="FILE" if name in SECRETS else "VALUE",
            help=f"{field.description} [{variable}{default}]",
        )
        if name in SECRETS:
            group.add_argument(flag.removesuffix("-file"), action=_NoSuchFlag, nargs="?", help=argparse.SUPPRESS)


class _NoSuchFlag(argparse.Action):
    """A flag that would hold a secret. It says what there is instead, and does not repeat the value."""

    def __call__(self, *_: object) -> None:
        (flag,) = self.option_strings
        variable = PREFIX + flag.removeprefix("--").replace("-", "_").upper()
        raise SettingsError(
            f"{flag}: there is no such flag, because other users of this machine can read a command line; "
            f"use {flag}-file FILE, {variable} or {variable}_FILE"
        )


def _settings(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Settings:
    return load(environment, _flags(arguments))


def _flags(arguments: argparse.Namespace) -> dict[str, Flag]:
    return {
        name: Flag(flag="--" + name.replace("_", "-") + ("-file" if name in SECRETS else ""), value=value)
        for name in Settings.model_fields
        if (value := getattr(arguments, name, None)) is not None
    }


# --- serve ---------------------------------------------------------------------------------------------------------


def _serve(arguments: argparse.Namespace) -> int:
    token_files = WatchedFiles(files_of(("tokens", "admin_tokens"), os.environ, _flags(arguments)))
    settings = _settings(arguments, os.environ)
    logging_setup.set_up(settings.log_level, settings.log_format)
    import logging

    from app.server import run

    limit = raise_limit()
    for name in unknown_names(os.environ):
        logging_setup.event(logging.getLogger(__name__), logging.WARNING, "unknown setting", name=name)
    run(settings, limit, lambda: _settings(arguments, os.environ), token_files)
    return OK


# --- doctor --------------------------------------------------------------------------------------------------------


def _doctor(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments, os.environ)
    from app.doctor.report import examine

    lines, well = examine(settings)
    _print(lines)
    _print(_unknown_settings())
    return OK if well else FAILED


def _unknown_settings() -> list[str]:
    return [f"note: {name} is not a setting; it is probably misspelt" for name in unknown_names(os.environ)]


# --- grow ----------------------------------------------------------------------------------------------------------


def _grow(arguments: argparse.Namespace) -> int:
    arguments.increment = str(arguments.new_increment)
    settings = _settings(arguments, {name: text for name, text in os.environ.items() if name not in INCREMENT_NAMES})
    _print(_unknown_settings())
    return asyncio.run(_change_ring(settings, arguments.new_increment))


async def _change_ring(settings: Settings, increment: int) -> int:
    from app.commands.grow import GrowthRefused, grow
    from app.service import make_databases

    databases = make_databases(settings, on_retry=lambda _name, _cause: None)
    try:
        ring = await grow(databases, increment, lambda line: _print([line]), max(WATCHED, 4 * settings.probe_interval))
    except GrowthRefused as refused:
        _print(f"left to do: {line}" for line in refused.left)
        return FAILED
    finally:
        await asyncio.gather(*(database.close() for database in databases))
    _print([f"done: the ring has number {ring.number} and increment {ring.increment}; start the ticket servers"])
    return OK


# --- take, bump ----------------------------------------------------------------------------------------------------


def _add_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", default=DEFAULT_URL, help="the ticket server, or the load balancer in "
                        "front of several [default %(default)s]")  # fmt: skip
    parser.add_argument("--token-file", metavar="FILE", help="a file with the bearer token")


def _remote(arguments: argparse.Namespace) -> RemoteServer:
    token = None if arguments.token_file is None else _secret("--token-file", arguments.token_file).strip()
    return RemoteServer(arguments.url, token)


def _secret(flag: str, path: str) -> str:
    text = read_value(path, flag)
    if "\n" in text.strip():
        raise SettingsError(f"{flag}: the file {path} does not hold one line")
    return text


def _take(arguments: argparse.Namespace) -> int:
    for ids in _remote(arguments).take(arguments.sequence, arguments.number):
        _print(map(str, ids))
    return OK


def _bump(arguments: argparse.Namespace) -> int:
    server = _remote(arguments)
    above = arguments.above
    if arguments.source is not None:
        above = _last_used(arguments.source, arguments.from_password_file)
    answer = server.bump(arguments.sequence, above, force=arguments.force)
    _print([f"{arguments.sequence}: every ticket from now on is larger than {above}"])
    _print(
        f"  {each.get('name')}: last id {each.get('last')}"
        for each in answer.get("databases", [])
        if isinstance(each, dict)
    )
    return OK


def _last_used(source: str, password_file: str | None) -> int:
    from app.databases.mysql.other_tables import Column, used_by

    password = None if password_file is None else _secret("--from-password-file", password_file)
    try:
        column = Column.parse(source, password)
        used = asyncio.run(used_by(column))
    except TicketDatabaseError as error:
        raise TicketError(f"--from: {column.url.name} {error}") from error
    except SettingsError as error:
        raise SettingsError(f"--from: {error}") from error
    counted = f", and its counter has given {used.counted}" if used.counted > used.largest else ""
    _print([f"{column.name}: the largest number is {used.largest}{counted}"])
    return used.last


# --- decode, sql ---------------------------------------------------------------------------------------------------


def _tell(arguments: argparse.Namespace) -> int:
    _print([kinds.told(arguments)])
    return OK


def _print(lines: Iterable[str]) -> None:
    """Print the lines and flush, so that the reader has them whatever happens next."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


# --- the command line ----------------------------------------------------------------------------------------------


def _whole_number(smallest: int) -> Callable[[str], int]:
    """A type for argparse: a whole number in digits."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= 20 and int(text) >= smallest):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, {smallest} or more")
        return int(text)

    return read


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="ticketd",
        description="A ticket server: unique ids, drawn from an odd and an even ticket database.",
        epilog=_PROGRAM,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"ticketd {VERSION}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(name: str, summary: str, description: str, epilog: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=summary,
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    serve = command("serve", "run the server", "Run the ticket server until a signal ends it.", _SERVE)
    _add_settings(serve)
    serve.set_defaults(run=_serve)

    take = command("take", "print tickets from a server", "Print tickets, one a line, from a ticket server.", _TAKE)
    take.add_argument("sequence", metavar="SEQUENCE", help="the sequence, for instance photos")
    take.add_argument("-n", dest="number", metavar="N", type=_whole_number(1), default=1, help="how many [default 1]")
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
    above.add_argument("--above", metavar="N", type=_whole_number(0), help="every later ticket is larger than N")
    above.add_argument(
        "--from",
        dest="source",
        metavar="URL",
        help="mysql://user:password@host:port/database/table.column: every later ticket is larger than what that "
        "column holds and its counter has given; it is only read. Other users of this machine can see a command line: "
        "leave the password out and use --from-password-file",
    )
    bump.add_argument("--from-password-file", metavar="FILE", help="a file with the password for --from")
    bump.add_argument("--force", action="store_true", help="even if it uses up more than 90 %% of the sequence")
    _add_server(bump)
    bump.set_defaults(run=_bump)

    grow = command(
        "grow",
        "change the increment of the ring, while no server runs",
        "Change the increment of the ring, to add more databases than it has room for or to remove some.",
        _GROW,
    )
    grow.add_argument(
        "--increment",
        dest="new_increment",
        metavar="M",
        type=_whole_number(1),
        required=True,
        help="the new auto_increment_increment of all databases; a value above their number leaves room to grow",
    )
    _add_settings(grow, without=("increment",))
    grow.set_defaults(run=_grow)

    doctor = command(
        "doctor",
        "check every ticket database",
        "Print what would break a guarantee or slow the server down, one line each, and how to fix it.",
        _DOCTOR,
    )
    _add_settings(doctor)
    doctor.set_defaults(run=_doctor)
    kinds.add_commands(command, _whole_number, _tell)
    return parser


def main() -> None:
    """Entry point of `ticketd`; exits with the command's status."""
    try:
        arguments = build_parser().parse_args()
        status = arguments.run(arguments)
    except TicketError as error:
        line = str(error).replace("\n", "\\n")
        print(f"ticketd: {line}", file=sys.stderr)
        status = UNUSABLE if isinstance(error, SettingsError) else FAILED
    except BrokenPipeError:
        # the reader has closed the pipe: Python's own flush at exit must not fail on it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = BROKEN_PIPE
    except KeyboardInterrupt:
        status = INTERRUPTED
    sys.exit(status)
