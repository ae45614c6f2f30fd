"""The command line `ticketd`. Exit status: 1 where something was refused, 2 where arguments or settings are wrong."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.exceptions import TyperException

from app.commands import local, remote
from app.errors import SettingsError
from app.version import VERSION

app = typer.Typer(
    name="ticketd",
    help="Unique ids for distributed systems, from an odd and an even ticket database.",
    add_completion=False,
    pretty_exceptions_enable=False,  # its tracebacks would show local variables
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"ticketd {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="The version.")
    ] = False,
) -> None:
    """Take the options that come before the command."""


local.add_to(app)
remote.add_to(app)


def run(arguments: Sequence[str]) -> int:
    """Run one command, and return its exit status. Raises TicketError, and BrokenPipeError if the reader has gone."""
    try:
        status: int | None = app(list(arguments), prog_name="ticketd", standalone_mode=False)
        sys.stdout.flush()
    except TyperException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "ticketd"
        raise SettingsError(f"{error.format_message().rstrip('.')}; {path} --help says what is wanted") from error
    return status or 0
