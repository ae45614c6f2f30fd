"""The commands that need no running server: serve, doctor, decode and sql."""

import inspect
import json
import os
import time
from typing import Annotated, Any

import typer

from app.errors import InvalidRequest, SettingsError
from app.http.decoding import of_elsewhere
from app.kinds.instagram_sql import instagram_sql
from app.kinds.table import DECODE_PARAMETERS, KINDS
from app.settings import Settings, flags, load

_SERVE = """Run the ticket server until a signal ends it.

SIGTERM: the server is not ready any more, serves for --drain-seconds, and ends. Every flag is a variable as well, whose
value may come from the file that TICKETS_..._FILE names.
"""
_DOCTOR = """Print what would break a guarantee or slow the server down, a line each, and how to mend it.

It changes nothing, and may run while servers run. Exit status 1 where something is wrong.
"""


def add_to(app: typer.Typer) -> None:
    """Add the commands to a command line."""
    app.command("serve", help=_SERVE)(_with_settings(_serve))
    app.command("doctor", help=_DOCTOR)(_with_settings(_doctor))
    app.command()(decode)
    app.command()(sql)


def _with_settings(run: Any) -> Any:
    """Return a command that has a flag for each setting, and calls `run` with the settings."""

    def command(**given: str | None) -> None:
        raise typer.Exit(run(load(os.environ, given)))

    parameters = [
        inspect.Parameter(
            flag.field,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[str | None, typer.Option(flag.name, help=_help(flag), metavar="VALUE")],
        )
        for flag in flags()
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def _help(flag: Any) -> str:
    default = "" if flag.default is None or flag.default == "" else f" [default: {flag.default}]"
    file = "A file with: " if flag.name.endswith("-file") else ""
    return f"{file}{flag.wanted}{default} [{flag.variable}]"


def _serve(settings: Settings) -> int:
    from app.server import serve

    return serve(settings)


def _doctor(settings: Settings) -> int:
    from app.doctor.report import run

    return run(settings)


def decode(  # noqa: PLR0917  one argument for each flag
    id_: Annotated[str, typer.Argument(metavar="ID", help="The id, as a server writes it.")],
    kind: Annotated[str | None, typer.Option(metavar="KIND", help=f"{', '.join(KINDS)}.")] = None,
    bits: Annotated[int | None, typer.Option(metavar="N", help="ticket: the length of an id.")] = None,
    increment: Annotated[int | None, typer.Option(metavar="N", help="ticket: the ring's increment.")] = None,
    epoch: Annotated[
        int | None, typer.Option(metavar="MS", help="Where the ids' time begins, in ms since 1970.")
    ] = None,
    shards: Annotated[int | None, typer.Option(metavar="N", help="instagram, instagram32: how many shards.")] = None,
    random_bits: Annotated[int | None, typer.Option(metavar="N", help="simpleflake: how many random bits.")] = None,
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
        raise SettingsError(str(why) if kind is not None else "no kind has such an id; --kind KIND says why") from why
    for each in found:
        print(json.dumps(each))


def sql(
    kind: Annotated[str, typer.Argument(metavar="instagram", help="PL/pgSQL for one PostgreSQL shard.")],
    schema: Annotated[str, typer.Option(metavar="NAME", help="Where the function and its sequence are made.")],
    shard: Annotated[int, typer.Option(min=0, metavar="N", help="This database's shard, 0 to 8191.")],
    epoch: Annotated[
        int | None, typer.Option(metavar="MS", help="Where the ids' time begins, in ms since 1970.")
    ] = None,
) -> None:
    """Print the SQL that makes ids of a kind inside another database: a function SCHEMA.next_id()."""
    if kind != "instagram":
        raise SettingsError(f"there is no SQL for {kind!r}; expected instagram")
    try:
        known = KINDS[kind]
        now = time.time_ns() // 1_000_000
        parameters = known.complete({} if epoch is None else {"epoch": epoch}, now)
        known.check_new(parameters, now)
        print(instagram_sql(schema, shard, parameters))
    except InvalidRequest as error:
        raise SettingsError(str(error)) from error
