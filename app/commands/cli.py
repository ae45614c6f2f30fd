"""`ticketd`: the commands."""

import argparse
import asyncio
import os
import re
import sys
from collections.abc import Mapping
from typing import NoReturn

from app.clients.open_files import raise_limit
from app.commands import kinds, remote_commands
from app.commands.setting_flags import add_settings, flags_in
from app.commands.terminal import AddCommand, print_lines, whole_number
from app.common import log as logging_setup
from app.common.errors import SettingsError, TicketError
from app.common.value_files import WatchedFiles
from app.common.version import VERSION
from app.databases import engines
from app.settings import Settings, files_of, load, unknown_names

OK, FAILED, UNUSABLE, BROKEN_PIPE, INTERRUPTED = 0, 1, 2, 141, 130
"""Exit statuses; the last two as the shell gives them to a program that a signal ended."""

WATCHED = 4.0
"""The least time, in seconds, for which `grow` watches the databases for running ticket servers."""
READ_BY_DOCTOR = ("databases", "database_password", "data_dir", "increment", "database_timeout")
READ_BY_GROW = ("databases", "database_password", "data_dir", "database_timeout", "probe_interval")
INCREMENT_NAMES = ("TICKETS_INCREMENT", "TICKETS_INCREMENT_FILE")
"""Variables that `grow` ignores, because its flag sets the increment."""

_PROGRAM = """
examples:
  ticketd serve                          the server, on two embedded ticket databases in ./ticket-data
  ticketd take photos                    a ticket from it
  ticketd list                           its sequences
  ticketd doctor                         check the ticket databases
  ticketd decode ID                      what an id says
  ticketd help COMMAND                   help on a command
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
_VERSION = """
examples:
  ticketd version
  ticketd --version                      the same
"""
_HELP = """
examples:
  ticketd help                           which commands there are
  ticketd help take                      the same as ticketd take --help
"""


def _settings(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Settings:
    return load(environment, flags_in(arguments))


# --- serve ---------------------------------------------------------------------------------------------------------


def _serve(arguments: argparse.Namespace) -> int:
    token_files = WatchedFiles(files_of(("tokens", "admin_tokens"), os.environ, flags_in(arguments)))
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


# --- help, version -------------------------------------------------------------------------------------------------


def _version(_: argparse.Namespace) -> int:
    print_lines([f"ticketd {VERSION}"])
    return OK


def _add_help(
    parser: argparse.ArgumentParser, commands: Mapping[str, argparse.ArgumentParser], add: AddCommand
) -> None:
    """Add `help` and `version`. `commands` has all commands by their names, `help` included once it is added."""
    version = add("version", "print the version", "Print the version.", _VERSION)
    version.set_defaults(run=_version)

    def print_help(arguments: argparse.Namespace) -> int:
        asked = parser if arguments.command is None else commands[arguments.command]
        print_lines([asked.format_help().rstrip("\n")])
        return OK

    help_ = add("help", "help on a command", "Print what a command does, or which commands there are.", _HELP)
    help_.add_argument("command", metavar="COMMAND", nargs="?", choices=tuple(commands), help="the command")
    help_.set_defaults(run=print_help)


# --- the command line ----------------------------------------------------------------------------------------------


def _add_serve(command: AddCommand) -> None:
    serve = command("serve", "run the server", "Run the ticket server until a signal ends it.", _SERVE)
    add_settings(serve)
    serve.set_defaults(run=_serve)


def _add_grow(command: AddCommand) -> None:
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
    add_settings(grow, read=READ_BY_GROW, without=("increment",))
    grow.set_defaults(run=_grow)


def _add_doctor(command: AddCommand) -> None:
    doctor = command(
        "doctor",
        "check every ticket database",
        "Print what would break a guarantee or slow the server down, one line each, and how to fix it.",
        _DOCTOR,
    )
    add_settings(doctor, read=READ_BY_DOCTOR)
    doctor.set_defaults(run=_doctor)


class CommandLine(argparse.ArgumentParser):
    """A parser whose errors repeat an argument without the password of a URL."""

    def error(self, message: str) -> NoReturn:
        """See ArgumentParser.error."""
        super().error(re.sub(r"//\S*@", "//...@", message))


def build_parser() -> CommandLine:
    """The command line. `--help` lists the commands in the order in which this adds them."""
    parser = CommandLine(
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

    _add_serve(command)
    remote_commands.add_commands(command)
    _add_grow(command)
    _add_doctor(command)
    kinds.add_commands(command, _tell)
    _add_help(parser, commands.choices, command)
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
