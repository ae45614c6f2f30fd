"""`ticketd decode` and `ticketd sql`: what an id says, and ids inside PostgreSQL. Both work without a server."""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from app.commands.terminal import AddCommand, whole_number
from app.common.errors import InvalidRequest, SettingsError
from app.kinds.instagram_sql import instagram_sql
from app.kinds.kind import Kind
from app.kinds.table import DECODE_PARAMETERS, KINDS, decoded, kind_named

_DECODE = """
examples:
  ticketd decode 1541815603606036480
      every kind that this id can be of, one per line, with the time that it would mean
  ticketd decode --kind instagram --epoch 0 2217813737473025833
  ticketd decode --kind ticket --increment 2 7
  ticketd decode 2217813737473025833 | jq -r '[.kind, .time] | @tsv'

Each line is the JSON that the server answers at /decode?kind=... A parameter that is left out has the kind's default.
Where a kind has no default for a parameter, "needs" names it, and the line says only what does not depend on it.
With a parameter but without --kind, only the kinds that take this parameter are tried.

exit status: 0; 2 for an id that no kind, or not this one, can have, and for unusable arguments
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

_TOLD_BY = {"increment": ("offset",), "epoch": ("time", "time_ms")}
"""The fields of a reading that a parameter without a default decides."""


def add_commands(
    command: AddCommand,
    run: Callable[[argparse.Namespace], int],
) -> None:
    """Add both to the command line; `run` prints what `told` makes of their arguments."""
    decode = command("decode", "what an id says", "Print what an id says: its time, shard, worker, counter.", _DECODE)
    decode.add_argument(
        "--kind", metavar="KIND", help=f"{', '.join(KINDS)} [default: every kind that the id can be of]"
    )
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
    """The output of the command. Raises SettingsError if its arguments cannot be used."""
    tell: Callable[[argparse.Namespace], str] = arguments.tell
    try:
        return tell(arguments)
    except InvalidRequest as error:
        raise SettingsError(str(error)) from error


def _decode(arguments: argparse.Namespace) -> str:
    given = {name: value for name in DECODE_PARAMETERS if (value := getattr(arguments, name)) is not None}
    if arguments.kind is not None:
        kind = kind_named(arguments.kind)
        return json.dumps(decoded(None, kind, kind.for_decoding(given), arguments.id))
    fitting = list(_readings(given, arguments.id))
    if not fitting:
        with_these = " with these parameters" if given else ""
        raise InvalidRequest(f"no kind has such an id{with_these}; --kind KIND says why it is none of this kind")
    return "\n".join(map(json.dumps, fitting))


def _readings(given: Mapping[str, int], id_text: str) -> Iterator[dict[str, Any]]:
    """The reading of the id as each kind that it can be of."""
    for kind in KINDS.values():
        try:
            yield _reading(kind, given, id_text)
        except InvalidRequest:
            continue  # it cannot be of this kind


def _reading(kind: Kind, given: Mapping[str, int], id_text: str) -> dict[str, Any]:
    """The reading of the id as this kind. Raises InvalidRequest if it cannot be of this kind.

    `needs` names the parameters that are not given and have no default. The reading is without what depends on them.
    """
    needs = [name for name, each in kind.read_with.items() if each.default is None and name not in given]
    presumed = {name: kind.read_with[name].smallest for name in needs}
    said = decoded(None, kind, kind.for_decoding({**given, **presumed}), id_text)
    left_out = {field for name in needs for field in _TOLD_BY[name]}
    return {name: value for name, value in said.items() if name not in left_out} | ({"needs": needs} if needs else {})


def _sql(arguments: argparse.Namespace) -> str:
    given = {} if arguments.epoch is None else {"epoch": arguments.epoch}
    parameters = kind_named(arguments.kind).complete(given, time.time_ns() // 1_000_000)
    return instagram_sql(arguments.schema, arguments.shard, parameters)
