"""What `ticketd sql instagram` prints, on a real PostgreSQL: ids of the article's kind, none twice."""

import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.commands import forked_ticketd
from tests.harness.postgresql import PostgreSQL
from tests.harness.postgresql_clients import Draws, Session
from tests.harness.processes import wait_until

pytestmark = pytest.mark.any_engine

EPOCH = 1314220021721
SHARD = 5
HOUR = 3_600_000 * 1024
"""In ticks."""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSQL]:
    with PostgreSQL() as running:
        yield running


_numbers = itertools.count(1)


def make(server: PostgreSQL) -> str:
    """A schema of its own with the function in it; returns its name."""
    schema = f"insta{next(_numbers)}"
    made = server.psql(sql(schema))
    assert (made.status, made.output) == (0, ""), made.errors
    return schema


def sql(schema: str, *flags: object) -> str:
    """The SQL as it is printed."""
    ran = forked_ticketd("sql", "instagram", "--schema", schema, *(flags or ("--shard", SHARD, "--epoch", EPOCH)))
    assert ran.status == 0, ran.errors
    return ran.output


def tick(made: int) -> int:
    """The time and the counter of an id in one number."""
    return made >> 23 << 10 | made & 1023


def clock_back(server: PostgreSQL, schema: str) -> None:
    """As if the clock had been set back by an hour: the last tick lies so far ahead of it."""
    server.numbers(f"SELECT {schema}.next_id();")
    server.numbers(f"SELECT setval('{schema}.tick', nextval('{schema}.tick') + {HOUR});")


def decode(made: int) -> Any:
    ran = forked_ticketd("decode", "--kind", "instagram", "--epoch", EPOCH, made)
    assert ran.status == 0, ran.errors
    return json.loads(ran.output)


def test_ids_have_the_time_the_shard_and_a_counter(server: PostgreSQL) -> None:
    schema = make(server)
    before = time.time_ns() // 1_000_000
    made = server.numbers(f"SELECT {schema}.next_id();" * 2)
    after = time.time_ns() // 1_000_000
    for each in made:
        said = decode(each)
        assert (said["kind"], said["id_str"], said["shard"]) == ("instagram", str(each), SHARD)
        assert before <= said["time_ms"] <= after
    assert made == sorted(set(made))


def test_it_is_run_again_and_goes_on(server: PostgreSQL) -> None:
    schema = make(server)
    clock_back(server, schema)
    (first,) = server.numbers(f"SELECT {schema}.next_id();")
    again = server.psql(sql(schema))
    assert (again.status, again.output) == (0, "")
    (second,) = server.numbers(f"SELECT {schema}.next_id();")
    assert tick(second) == tick(first) + 1


@pytest.mark.parametrize("flags", [("--shard", 6, "--epoch", EPOCH), ("--shard", SHARD, "--epoch", EPOCH + 1)])
def test_for_another_shard_or_epoch_it_is_refused_in_the_same_schema(
    server: PostgreSQL, flags: tuple[object, ...]
) -> None:
    schema = make(server)
    refused = server.psql(sql(schema, *flags))
    assert refused.status != 0
    assert f"{schema}.tick was made for another shard or epoch" in refused.errors
    (made,) = server.numbers(f"SELECT {schema}.next_id();")
    assert made >> 10 & 8191 == SHARD


def test_somebody_elses_sequence_of_that_name_is_not_taken(server: PostgreSQL) -> None:
    assert server.psql("CREATE SCHEMA theirs; CREATE SEQUENCE theirs.tick CACHE 10;").status == 0
    assert "theirs.tick was made for another" in server.psql(sql("theirs")).errors


def test_another_role_draws_by_usage_alone_and_cannot_set_the_sequence(server: PostgreSQL) -> None:
    schema = make(server)
    made = server.psql(
        f"CREATE ROLE app_{schema} LOGIN; GRANT USAGE ON SCHEMA {schema} TO app_{schema};"
        f"CREATE TABLE likes_{schema} (id bigint PRIMARY KEY DEFAULT {schema}.next_id(), photo bigint);"
        f"GRANT INSERT, SELECT ON likes_{schema} TO app_{schema};"
    )
    assert made.status == 0, made.errors
    role = f"app_{schema}"
    drawn = server.psql(f"INSERT INTO likes_{schema} (photo) VALUES (1), (2), (3) RETURNING id;", user=role)
    assert drawn.status == 0, drawn.errors
    assert len(set(drawn.lines)) == 3
    for forbidden in (f"setval('{schema}.tick', 1)", f"nextval('{schema}.tick')"):
        assert "permission denied" in server.psql(f"SELECT {forbidden};", user=role).errors


def test_a_search_path_of_the_callers_does_not_reach_into_it(server: PostgreSQL) -> None:
    schema = make(server)
    (made,) = server.numbers(
        "CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql"
        " AS $$ SELECT timestamptz '1990-01-01' $$;"
        f"SET search_path = public, pg_catalog; SELECT {schema}.next_id(); DROP FUNCTION public.clock_timestamp();"
    )
    assert abs((made >> 23) + EPOCH - time.time_ns() / 1e6) < 60_000


def test_a_clock_that_was_set_back_repeats_nothing(server: PostgreSQL) -> None:
    schema = make(server)
    clock_back(server, schema)
    made = server.numbers(f"SELECT {schema}.next_id() FROM generate_series(1, 3000);")
    ticks = list(map(tick, made))
    assert ticks == list(range(ticks[0], ticks[0] + 3000))  # over 1,024: on into the next millisecond
    assert made == sorted(set(made))


def test_the_clock_is_followed(server: PostgreSQL) -> None:
    schema = make(server)
    with Session(server) as session:

        def lead() -> float:
            """How far the next id's time is ahead of the clock that was read before it, in ms."""
            said = session.ask(
                f"SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint, {schema}.next_id();"
            )
            now, made = map(int, said[0].split("|"))
            return (made >> 23) + EPOCH - now

        leads = [lead() for _ in range(200)]
    assert min(leads) >= 0
    assert sorted(leads)[100] <= 1000


def test_a_transaction_that_stands_open_holds_nobody_up_and_a_rollback_gives_no_id_back(server: PostgreSQL) -> None:
    schema = make(server)
    clock_back(server, schema)
    with Session(server) as session:
        session.ask("BEGIN;")
        (open_one,) = map(int, session.ask(f"SELECT {schema}.next_id();"))
        (other,) = server.numbers(f"SET statement_timeout = '20s'; SELECT {schema}.next_id();")
        session.ask("ROLLBACK;")
    (later,) = server.numbers(f"SELECT {schema}.next_id();")
    assert tick(open_one) + 2 == tick(other) + 1 == tick(later)


def test_a_statement_that_is_cancelled_leaves_no_lock(server: PostgreSQL) -> None:
    schema = make(server)
    lock = f"('pg_class'::regclass::oid::integer, '{schema}.tick'::regclass::oid::integer)"
    with Session(server) as holder, Session(server) as waiter:
        holder.ask(f"SELECT pg_advisory_lock{lock};")
        waiter.ask("BEGIN; SAVEPOINT here; SET LOCAL statement_timeout = '300ms';")
        assert "canceling statement" in waiter.ask(f"SELECT {schema}.next_id();")[0]
        waiter.ask("ROLLBACK TO here;")
        holder.ask(f"SELECT pg_advisory_unlock{lock};")
        # the one that was cancelled is still in its transaction
        server.numbers(f"SET statement_timeout = '20s'; SELECT {schema}.next_id();")
        assert server.numbers("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory';") == [0]


def test_eight_sessions_draw_no_id_twice_and_each_in_order(server: PostgreSQL) -> None:
    schema = make(server)
    draws = Draws(server, 8, f"SELECT {schema}.next_id();", 500)
    assert set(draws.wait()) == {0}
    assert_none_twice(draws.answered)
    assert sum(map(len, draws.answered)) == 4_000


def assert_none_twice(answered: list[list[int]]) -> None:
    """No id twice among all; each session's increase."""
    drawn = [each for ids in answered for each in ids]
    assert len(set(drawn)) == len(drawn)
    assert all(ids == sorted(ids) for ids in answered)


# --- crashes -------------------------------------------------------------------------------------------------------


def test_after_a_crash_none_comes_again_though_the_clock_is_behind(server: PostgreSQL) -> None:
    schema = make(server)
    clock_back(server, schema)
    draws = Draws(server, 8, f"SELECT {schema}.next_id();", 50_000)
    answered = draws.answered
    wait_until(lambda: sum(map(len, answered)) > 2000, 60.0, "2,000 ids")
    server.kill()
    assert 0 not in draws.wait()
    server.start()
    answered.append(server.numbers(f"SELECT {schema}.next_id() FROM generate_series(1, 1000);"))
    assert_none_twice(answered)


def test_what_was_drawn_beside_an_open_transaction_survives_a_crash(server: PostgreSQL) -> None:
    """The case in which nextval alone repeats every value: one session has logged what the other one draws."""
    schema = make(server)
    clock_back(server, schema)
    with Session(server) as session:
        session.ask("BEGIN;")
        assert len(session.ask(f"SELECT {schema}.next_id();")) == 1
        drawn = server.numbers(f"SELECT {schema}.next_id();\n" * 20)
        server.kill()
    server.start()
    later = server.numbers(f"SELECT {schema}.next_id() FROM generate_series(1, 100);")
    assert not set(drawn) & set(later)
    assert tick(min(later)) <= tick(max(drawn)) + 33  # the gap that a crash leaves


def test_it_ends_with_the_largest_positive_id(server: PostgreSQL) -> None:
    schema = make(server)
    server.numbers(f"SELECT setval('{schema}.tick', {2**50 - 2});")
    assert server.numbers(f"SELECT {schema}.next_id();") == [(2**40 - 1) << 23 | SHARD << 10 | 1023]
    assert "reached maximum value of sequence" in server.psql(f"SELECT {schema}.next_id();").errors


# --- the command ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--schema", "insta5", "--shard", 8192), "shard is a whole number from 0 to 8191"),
        (("--schema", "Insta5", "--shard", 5), "lower-case"),
        (("--schema", "insta5; DROP TABLE likes", "--shard", 5), "lower-case"),
        (("--schema", "pg_insta", "--shard", 5), "not pg_"),
        (("--schema", "5insta", "--shard", 5), "no digit first"),
        (("--schema", "i" * 64, "--shard", 5), "1 to 63"),
        (("--schema", "insta5", "--shard", 5, "--epoch", 0), "less than a year"),
        (("--schema", "insta5", "--shard", 5, "--epoch", 10**13), "lies in the future"),
    ],
)
def test_what_cannot_be_is_an_error_of_usage(flags: tuple[object, ...], why: str) -> None:
    ran = forked_ticketd("sql", "instagram", *flags)
    assert (ran.status, ran.output) == (2, "")
    assert why in ran.errors
    assert len(ran.errors.splitlines()) == 1


def test_what_is_printed_says_what_it_covers_and_what_not() -> None:
    printed = sql("insta5")
    assert "insta5.next_id()" in printed
    for words in ("2046-06-27T17:00:49.497Z", "What it costs", "What it does not cover", "synchronous_commit"):
        assert words in printed
