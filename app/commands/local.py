"""The commands that need no running server: serve, doctor, decode and sql."""

import inspect
import json
import os
import time
from typing import Annotated, Any

import typer

from app.commands.options import Bits, Epoch, Kind, RandomBits, Shards
from app.errors import InvalidRequest, SettingsError
from app.http.decoding import of_elsewhere
from app.kinds.instagram_sql import instagram_sql
from app.kinds.table import DECODE_PARAMETERS, KINDS
from app.settings import Settings, flags, load


def add_to(app: typer.Typer) -> None:
    """Add the commands to a command line."""
    for run in (serve, doctor):
        app.command(run.__name__, help=run.__doc__)(_with_settings(run))
    app.command("grow", help=grow.__doc__)(_with_settings(grow, *_GROW_FLAGS))
    app.command()(decode)
    app.command()(sql)


def _with_settings(run: Any, *more: inspect.Parameter) -> Any:
    """Return a command that has a flag for each setting, and calls `run` with the settings.

    more: further flags, which `run` gets too. One with the name of a setting stands in its place.
    """
    names = {parameter.name for parameter in more}

    def command(**given: Any) -> None:
        own = {name: given.pop(name) for name in names}
        raise typer.Exit(run(load(os.environ, given), **own))

    parameters = [
        inspect.Parameter(
            flag.field,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[str | None, typer.Option(flag.name, help=_help(flag), metavar="VALUE")],
        )
        for flag in flags()
        if flag.field not in names
    ] + list(more)
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def _help(flag: Any) -> str:
    default = "" if flag.default is None or flag.default == "" else f" [default: {flag.default}]"
    file = "A file with: " if flag.name.endswith("-file") else ""
    return f"{file}{flag.wanted}{default} [{flag.variable}]"


def serve(settings: Settings) -> int:
    """Run the ticket server until a signal ends it.

    SIGTERM: the server is not ready any more, serves for --drain-seconds, and ends. Every flag is a variable as well,
    whose value may come from the file that TICKETS_..._FILE names.
    """
    from app.server import serve

    return serve(settings)


def _flag(name: str, kind: Any, default: Any, help_: str, **how: Any) -> inspect.Parameter:
    annotation = Annotated[kind, typer.Option(f"--{name}", help=help_, **how)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


_GROW_FLAGS = (
    _flag("increment", int | None, None, "The ring's new increment.", min=1, max=65_535, metavar="M"),
    _flag("status", bool, False, "Say whether a change is under way, and what is left of it."),
)


def grow(settings: Settings, increment: int | None, status: bool) -> int:
    """Change the ring's increment, and which databases are in it, while ticket servers run.

    Set up the new databases first, and list them at the end of TICKETS_DATABASES. Only the last one can leave. Exit
    status 1 where the change was refused, or where --status finds one under way: the reason is printed.
    """
    from app.commands.growing import run

    if (increment is None) is not status:
        raise SettingsError("name either --increment M, the ring's new increment, or --status")
    return run(settings, increment)


def doctor(settings: Settings) -> int:
    """Print what would break a guarantee or slow the server down, a line each, and how to mend it.

    It changes nothing, and may run while servers run. Exit status 1 where something is wrong.
    """
    from app.doctor.report import run

    return run(settings)


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
    named = {"bits": bits, "increment": increment, "epoch": epoch, "shards": shards, "random_bits": random_bits}
    given = {name: value for name, value in named.items() if value is not None and name in DECODE_PARAMETERS}
    found, why = [], None
    for name in KINDS if kind is None else [kind]:
        try:
            found.append(of_elsewhere(name, given, id_))
        except InvalidRequest as error:
            why = error
    if not found:
        raise why if kind and why else SettingsError("no kind has such an id; --kind KIND says why")
    for each in found:
        print(json.dumps(each))


def sql(
    kind: Annotated[str, typer.Argument(metavar="instagram", help="PL/pgSQL for one PostgreSQL shard.")],
    schema: Annotated[str, typer.Option(metavar="NAME", help="Where the function and its sequence are made.")],
    shard: Annotated[int, typer.Option(min=0, metavar="N", help="This database's shard, 0 to 8191.")],
    epoch: Epoch = None,
) -> None:
    """Print the SQL that makes ids of a kind inside another database: a function SCHEMA.next_id()."""
    if kind != "instagram":
        raise SettingsError(f"there is no SQL for {kind!r}; expected instagram")
    known, now = KINDS[kind], time.time_ns() // 1_000_000
    parameters = known.complete({} if epoch is None else {"epoch": epoch}, now)
    known.check_new(parameters, now)
    print(instagram_sql(schema, shard, parameters))
