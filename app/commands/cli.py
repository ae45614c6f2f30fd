"""`ticketd`: the commands."""

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping

from app.clients.open_files import raise_limit
from app.commands import kinds, remote_commands
from app.commands.terminal import print_lines, whole_number
from app.common import log as logging_setup
from app.common.errors import SettingsError, TicketError
from app.common.value_files import WatchedFiles
from app.common.version import VERSION
from app.databases import engines
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
  ticketd list                           its sequences
  ticketd doctor                         check the ticket databases
  ticketd decode --kind ulid ID          what an id says
  ticketd COMMAND --help                 help on a command
"""
_SERVE = f"""
examples:
  ticketd serve
      two embedded ticket databases, odd and even, in ./ticket-data; tickets on http://127.0.0.1:8000
  TICKETS_DATABASES='{engines.example_urls(2)}' \\
  TICKETS_DATABASE_PASSWORD_FILE=/run/secrets/password ticketd serve
      two {engines.EXAMPLE.name} servers, the odd one first
  curl http://127.0.0.1:8000/ticket/photos
      a ticket; POST works too, and ?count=100 gives a hundred
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


_GROW = f"""
examples:
  TICKETS_DATABASES='{engines.example_urls(3)}' \\
  TICKETS_DATABASE_PASSWORD_FILE=/run/secrets/password ticketd grow --increment 3
      from two databases to three

Steps:
  1. stop every ticket server, and end those that are frozen (a release before 0.2.0 would go on drawing)
  2. set {engines.INCREMENT_SETTING}=M on all databases, old and new, and restart them
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
    print_lines(lines)
    print_lines(_unknown_settings())
    return OK if well else FAILED


def _unknown_settings() -> list[str]:
    return [f"note: {name} is not a setting; it is probably misspelt" for name in unknown_names(os.environ)]


# --- grow ----------------------------------------------------------------------------------------------------------


def _grow(arguments: argparse.Namespace) -> int:
    arguments.increment = str(arguments.new_increment)
    settings = _settings(arguments, {name: text for name, text in os.environ.items() if name not in INCREMENT_NAMES})
    print_lines(_unknown_settings())
    return asyncio.run(_change_ring(settings, arguments.new_increment))


async def _change_ring(settings: Settings, increment: int) -> int:
    from app.commands.grow import GrowthRefused, grow
    from app.service import make_databases

    databases = make_databases(settings, on_retry=lambda _name, _cause: None)
    try:
        watched = max(WATCHED, 4 * settings.probe_interval)
        ring = await grow(databases, increment, lambda line: print_lines([line]), watched)
    except GrowthRefused as refused:
        print_lines(f"left to do: {line}" for line in refused.left)
        return FAILED
    finally:
        await asyncio.gather(*(database.close() for database in databases))
    print_lines([f"done: the ring has number {ring.number} and increment {ring.increment}; start the ticket servers"])
    return OK


# --- decode, sql ---------------------------------------------------------------------------------------------------


def _tell(arguments: argparse.Namespace) -> int:
    print_lines([kinds.told(arguments)])
    return OK


# --- the command line ----------------------------------------------------------------------------------------------


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

    remote_commands.add_commands(command)

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
        type=whole_number(1),
        required=True,
        help=f"the new {engines.INCREMENT_SETTING} of all databases; a value above their number leaves room to grow",
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
    kinds.add_commands(command, _tell)
    return parser


def main() -> None:
    """Entry point of `ticketd`; exits with the command's status."""
    try:
        arguments = build_parser().parse_args()
        status = arguments.run(arguments) or OK
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
