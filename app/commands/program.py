"""The command line `ticketd`, and its commands that need no running server: serve, doctor, grow, decode and sql.

Exit status: 1 where something was refused, 2 where arguments or settings are wrong.
"""

import asyncio
import inspect
import json
import os
import re
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from typer.exceptions import TyperException

from app.commands.remote import COMMANDS, Bits, Epoch, Kind, RandomBits, Shards
from app.databases.engines import open_database
from app.errors import DatabaseError, InvalidRequest, SettingsError
from app.kinds.notation import time_text
from app.kinds.table import DECODE_PARAMETERS, KINDS, decoded
from app.kinds.timed import TimedKind
from app.service import boot_clock
from app.settings import Flag, Settings, flags, load
from app.tickets.growth import Growth, GrowthRefused
from app.tickets.sight import Member, Sight
from app.version import VERSION

_SCHEMA = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}", re.ASCII)

app = typer.Typer(
    name="ticketd",
    add_completion=False,
    pretty_exceptions_enable=False,  # its tracebacks would show local variables
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


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


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"ticketd {VERSION}")
        raise typer.Exit


@app.callback()
def _program(
    _: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="The version.")] = False,
) -> None:
    """Unique ids for distributed systems, from an odd and an even ticket database."""


def _settled(serving: Any) -> Any:
    """Add a command that has a flag for each setting, reads the settings, and calls this function with them.

    Where a parameter of the function has the name of a setting, it is the flag instead. The function returns the exit
    status.
    """
    _, *own = inspect.signature(serving).parameters.values()
    names = {each.name for each in own}

    def command(**given: Any) -> None:
        more = {name: given.pop(name) for name in names}
        raise typer.Exit(serving(load(os.environ, given), **more))

    of_settings = [
        inspect.Parameter(flag.field, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_option(flag))
        for flag in flags()
        if flag.field not in names
    ]
    command.__signature__ = inspect.Signature(of_settings + own)  # type: ignore[attr-defined]
    app.command(serving.__name__, help=serving.__doc__)(command)
    return serving


def _option(flag: Flag) -> Any:
    default = "" if flag.default is None else f" [default: {flag.default}]"
    text = f"{'A file with: ' if flag.is_secret else ''}{flag.wanted}{default} [{flag.variable}]"
    return Annotated[str | None, typer.Option(flag.name, help=text, metavar="VALUE")]


@_settled
def serve(settings: Settings) -> int:
    """Run the ticket server until a signal ends it.

    SIGTERM: the server is not ready any more, serves for --drain-seconds, and ends. Every flag is a variable as well,
    whose value may come from the file that TICKETS_..._FILE names.
    """
    from app.server import serve

    return serve(settings)


@_settled
def doctor(settings: Settings) -> int:
    """Print what would break a guarantee or slow the server down, a line each, and how to mend it.

    It changes nothing, and may run while servers run. Exit status 1 where something is wrong.
    """
    from app.doctor import run

    return run(settings)


@_settled
def grow(
    settings: Settings,
    *,
    increment: Annotated[
        int | None, typer.Option(min=1, max=65_535, metavar="M", help="The ring's new increment.")
    ] = None,
    status: Annotated[
        bool, typer.Option("--status", help="Say whether a change is under way, and what is left of it.")
    ] = False,
) -> int:
    """Change the ring's increment, and which databases are in it, while ticket servers run.

    Set up the new databases first, and list them at the end of TICKETS_DATABASES. Only the last one can leave. Exit
    status 1 where the change was refused, or where --status finds one under way: the reason is printed.
    """
    if (increment is None) is not status:
        raise SettingsError("name either --increment M, the ring's new increment, or --status")
    if settings.is_embedded:
        raise SettingsError("TICKETS_DATABASES: name the ticket databases; the embedded pair does not grow")

    async def run() -> list[str]:
        timeout = settings.database_timeout
        members = [Member(offset, open_database(each, timeout)) for offset, each in enumerate(settings.databases, 1)]
        growth = Growth(
            Sight(members, settings.probe_interval, timeout, boot_clock),
            increment or 1,
            f"grow-{socket.gethostname()}-{os.getpid()}"[:80],
            say=lambda what, done, total: progress.update(task, description=what, completed=done, total=total),
        )
        if status:
            return await growth.status()
        await growth.run()
        return []

    with Progress(console=Console(stderr=True), transient=not sys.stderr.isatty()) as progress:
        task = progress.add_task("looking at the ticket databases", total=None)
        try:
            left = asyncio.run(run())
        except (GrowthRefused, DatabaseError) as error:
            left = [str(error)]
    for line in left:
        print(line)
    return 1 if left else 0


@app.command()
def decode(  # noqa: PLR0917  one argument for each flag
    id_: Annotated[str, typer.Argument(metavar="ID", help="The id, as a server writes it.")],
    kind: Kind = None,
    bits: Bits = None,
    increment: Annotated[int | None, typer.Option(metavar="N", help="ticket: the ring's increment.")] = None,
    epoch: Epoch = None,
    shards: Shards = None,
    random_bits: RandomBits = None,
) -> None:
    """Print what an id says, as JSON: its time, shard, worker or counter. Without --kind, for each kind that fits."""
    named = locals()
    given = {name: named[name] for name in DECODE_PARAMETERS if named[name] is not None}
    found, why = [], None
    for name in KINDS if kind is None else [kind]:
        try:
            found.append(json.dumps(decoded(name, given, id_)))
        except InvalidRequest as error:
            why = error
    if not found:
        raise why if kind and why else SettingsError("no kind has such an id; --kind KIND says why")
    print(*found, sep="\n")


@app.command()
def sql(
    kind: Annotated[str, typer.Argument(metavar="instagram", help="PL/pgSQL for one PostgreSQL shard.")],
    schema: Annotated[str, typer.Option(metavar="NAME", help="Where the function and its sequence are made.")],
    shard: Annotated[int, typer.Option(min=0, metavar="N", help="This database's shard, 0 to 8191.")],
    epoch: Epoch = None,
) -> None:
    """Print the SQL that makes ids of a kind inside another database: a function SCHEMA.next_id()."""
    known, now = KINDS["instagram"], time.time_ns() // 1_000_000
    if kind != known.name or not isinstance(known, TimedKind):
        raise SettingsError(f"there is no SQL for {kind!r}; expected instagram")
    if not _SCHEMA.fullmatch(schema):
        wanted = "1 to 63 lower-case letters, digits and underscores, no digit first and not pg_"
        raise InvalidRequest(f"a schema's name is {wanted}")
    parameters = known.complete({} if epoch is None else {"epoch": epoch}, now)
    known.check_new(parameters, now)
    shard, since = known.shard_of(parameters, None, shard), parameters["epoch"]
    told = {"schema": schema, "shard": shard, "epoch": since, "last_tick": known.last_tick}
    told |= {"since": time_text(since), "end": time_text(known.time_of(parameters, known.last_tick + 1))}
    text = (Path(__file__).parent / "templates" / "instagram.sql").read_text(encoding="utf-8").rstrip("\n")
    print(text.format(**told, comment=f"ticketd: instagram, shard {shard}, epoch {since}"))


for _name, _command in COMMANDS.items():
    app.command(_name)(_command)
