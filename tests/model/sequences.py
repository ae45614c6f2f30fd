"""The sequences of a schedule: plain ones, and those of other kinds that it may make."""

from app.common.sequences import Width, ceiling_of, counter_table
from app.kinds.definition import Definition
from app.tickets.sources.instance_number import TABLE as INSTANCES
from tests.fakes.ticket_database import TRUE_TIME
from tests.model.stamps import timed

SEQUENCES = {"photos": Width.BIGINT, "accounts": Width.BIGINT, "small": Width.INT}
_BEGAN_MS = int(TRUE_TIME * 1000)
KINDS_MADE = {
    name: Definition(name, kind, parameters)
    for name, kind, parameters in [
        ("likes", "instagram", {"epoch": _BEGAN_MS, "shards": 2_000}),
        ("shorts", "instagram32", {"epoch": _BEGAN_MS, "shards": 4}),
        ("flakes", "snowflake", {"epoch": _BEGAN_MS}),
        ("instances", "flake", {}),
        ("objects", "objectid", {}),
    ]
}
"""The sequences of other kinds than `ticket` that a schedule may have."""
COUNTERS = {
    counter_table(name): definition for name, definition in KINDS_MADE.items() if timed(definition).parts == "shard"
}
CEILINGS = {name: ceiling_of(width, unsigned=True) for name, width in SEQUENCES.items()}
CEILINGS |= {table: timed(each).last_tick(each.parameters) for table, each in COUNTERS.items()}
CEILINGS[INSTANCES] = 2**63 - 1
