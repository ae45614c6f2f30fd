"""Kinds of sequence under wrong clocks, for longer than the tests do: `python -m tests.long.clocks SECONDS`.

Instagram ids on two databases and on three, of one shard and of 2,000, for so many seconds each; then snowflake ids,
with all databases dead for twice as long.
"""

import sys
import time

from tests.harness.clock_storm import disorder, instagram, snowflake
from tests.harness.engine import find_engine
from tests.harness.pair import MySQLPair


def main() -> int:
    """Print what came of each; 0 where every promise was kept, else an AssertionError says which was not."""
    seconds = float(sys.argv[1])
    engine = find_engine()
    print(f"on {engine.kind} {engine.version}", flush=True)
    for databases in (2, 3):
        for shards in (1, 2000):
            with MySQLPair(engine, n=databases) as pair:
                began = time.monotonic()
                load = instagram(pair.make_schema("kinds"), seconds, shards=shards)
            took = time.monotonic() - began
            print(
                f"{took:.0f} s, {databases} databases, {shards:,} shards: {load.ids:,} instagram ids, 0 twice",
                flush=True,
            )
    with MySQLPair(engine) as pair:
        load = snowflake(pair.make_schema("kinds"), 2 * seconds)
    assert disorder(load) == []
    print(f"{load.ids:,} snowflake ids, 0 twice, 0 below an earlier one of the same server", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
