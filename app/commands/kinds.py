"""`ticketd decode` and `ticketd sql`: what an id says, and ids inside PostgreSQL. Both work without a server."""

import argparse
import json
import time
from collections.abc import Callable

from app.commands.terminal import AddCommand, whole_number
from app.common.errors import InvalidRequest, SettingsError
from app.kinds.instagram_sql import instagram_sql
from app.kinds.table import DECODE_PARAMETERS, KINDS, decoded, kind_named

_DECODE = """
examples:
  ticketd decode --kind instagram --epoch 0 2217813737473025833
  ticketd decode --kind snowflake 1541815603606036480
  ticketd decode --kind ticket --increment 2 7

Prints the JSON that the server answers at /decode?kind=..., on one line.

exit status: 0; 2 for an id that cannot be of this kind, or unusable arguments
"""
_SQL = """
examples:
  ticketd sql instagram --schema insta5 --shard 5 | psql -v ON_ERROR_STOP=1 shop
      makes the function insta5.next_id() in the database shop
  ticketd sql instagram --schema insta5 --shard 5 --epoch 1314220021721
      the same, with the default epoch named

What is printed may be run again. Its comments say what it covers, what it costs and what it does not cover.

exit status: 0; 2 for unusable arguments
"""


def add_commands(
    command: AddCommand,
    run: Callable[[argparse.Namespace], int],
) -> None:
    """Add both to the command line; `run` prints what `told` makes of their arguments."""
    decode = command("decode", "what an id says", "Print what an id says: its time, shard, worker, counter.", _DECODE)
    decode.add_argument("--kind", required=True, metavar="KIND", help=", ".join(KINDS))
    for name in DECODE_PARAMETERS:
        takers = [kind.name for kind in KINDS.values() if name in kind.read_with]
        decode.add_argument(
            "--" + name.replace("_", "-"), dest=name, metavar="N", type=whole_number(0), help=f"of {', '.join(takers)}"
        )
    decode.add_argument("id", metavar="ID", help="the id, as the server writes it")
    decode.set_defaults(run=run, tell=_decode)

    sql = command(
        "sql", "SQL that makes ids inside another database", "Print SQL that makes ids inside a database.", _SQL
    )
    sql.add_argument("kind", metavar="KIND", choices=["instagram"], help="instagram: PL/pgSQL for a PostgreSQL shard")
    sql.add_argument("--schema", required=True, metavar="NAME", help="where the function and its sequence are made")
    sql.add_argument("--shard", required=True, metavar="N", type=whole_number(0), help="this database's, 0 to 8191")
    sql.add_argument("--epoch", metavar="N", type=whole_number(0), help="in ms since 1970 [default: the kind's]")
    sql.set_defaults(run=run, tell=_sql)


def told(arguments: argparse.Namespace) -> str:
    """What the command prints; SettingsError where its arguments cannot be used."""
    tell: Callable[[argparse.Namespace], str] = arguments.tell
    try:
        return tell(arguments)
    except InvalidRequest as error:
        raise SettingsError(str(error)) from error


def _decode(arguments: argparse.Namespace) -> str:
    kind = kind_named(arguments.kind)
    given = {name: value for name in DECODE_PARAMETERS if (value := getattr(arguments, name)) is not None}
    return json.dumps(decoded(None, kind, kind.for_decoding(given), arguments.id))


def _sql(arguments: argparse.Namespace) -> str:
    given = {} if arguments.epoch is None else {"epoch": arguments.epoch}
    parameters = kind_named(arguments.kind).complete(given, time.time_ns() // 1_000_000)
    return instagram_sql(arguments.schema, arguments.shard, parameters)
