"""Which ticket servers use a database: those that announce themselves, those of older releases, and who is none."""

import asyncio
from dataclasses import replace

import pytest

from app.databases.protocol import OLDER, ServerEntry, TicketDatabase
from tests.contract.engines.storages import Storage, on_each_engine

ONE = ServerEntry("0123456789abcdef", "1.2.3", ("ticket", "instagram", "snowflake"), 0.25, 1.5)
OTHER = ServerEntry("fedcba9876543210", "1.3.0-rc.1+a_b", (), 1.0)
SECONDS = 60.0
PROBES = "a ticket server that probes it"


async def announced(database: TicketDatabase, within: float = SECONDS) -> set[ServerEntry]:
    """The ticket servers that are there, without their times."""
    found = await database.servers(within)
    assert len({entry.instance for entry in found}) == len(found)
    return {replace(entry, at=0.0) for entry in found}


@on_each_engine
async def test_a_ticket_server_is_seen_with_all_that_it_announces(storage: Storage) -> None:
    nobody = await storage.client()
    assert await announced(nobody) == set()
    one, other = await storage.client(entry=ONE), await storage.client(entry=OTHER)
    for client in (nobody, one, other):
        assert await announced(client) == {ONE, OTHER}


@on_each_engine
async def test_it_is_seen_when_it_has_probed_last_by_the_databases_clock(storage: Storage) -> None:
    one = await storage.client(probe=False, entry=ONE)
    assert one.connections == 0
    for _ in range(3):
        before = storage.true_time()
        await one.probe()
        after = storage.true_time()
        (entry,) = await one.servers(SECONDS)
        assert before - 0.02 <= entry.at <= after + 0.02
        await asyncio.sleep(0.05)
    assert await one.servers(0.0) == []
    await one.probe()
    assert await announced(one, 1.0) == {ONE}


@on_each_engine
async def test_who_announces_something_else_is_seen_so(storage: Storage) -> None:
    one = await storage.client(entry=ONE)
    newer = replace(ONE, kinds=("ticket",), probe_interval=2.5)
    one.announce(lambda: newer)
    await one.probe()
    assert await announced(one) == {newer}


@on_each_engine
async def test_who_closes_is_gone_and_the_others_stay(storage: Storage) -> None:
    one, other, nobody = await storage.client(entry=ONE), await storage.client(entry=OTHER), await storage.client()
    await storage.close(one)
    assert await announced(other) == {OTHER}
    await storage.close(nobody)
    assert await announced(other) == {OTHER}
    await storage.close(other)
    assert await announced(await storage.client()) == set()


@on_each_engine
async def test_who_does_not_announce_himself_is_no_server(storage: Storage) -> None:
    """Neither a new one nor one of an older release: `grow` probes, too."""
    nobody, else_ = await storage.client(), await storage.client()
    for client in (nobody, else_):
        await client.probe()
        assert await announced(client) == set()


@on_each_engine
async def test_a_server_of_an_older_release_is_seen_as_that(storage: Storage) -> None:
    nobody, one = await storage.client(), await storage.client(entry=ONE)
    assert await announced(nobody) == {ONE}  # a new one is not taken for an older one
    before = storage.true_time()
    storage.probe_as_an_older_release()
    assert await announced(nobody) == await announced(one) == {ONE, ServerEntry("", OLDER, (), 0.0)}
    (older,) = [entry for entry in await one.servers(SECONDS) if entry.release == OLDER]
    assert before - 0.02 <= older.at <= storage.true_time() + 0.02
    await asyncio.sleep(0.05)
    assert await one.servers(0.01) == []


@on_each_engine
async def test_those_of_long_ago_are_forgotten(storage: Storage) -> None:
    """A killed one takes nothing away."""
    await storage.client(entry=ONE)
    storage.age_servers(2)
    nobody = await storage.client()
    assert await announced(nobody) == set()
    day = 86_400.0
    await storage.client(entry=OTHER)
    assert await announced(nobody, 3 * day) == {OTHER}


# --- in use ----------------------------------------------------------------------------------------------------------


@on_each_engine
async def test_a_watch_sees_the_probes_of_ticket_servers_new_and_older(storage: Storage) -> None:
    database, one = await storage.client(), await storage.client(entry=ONE)

    async def later(what: str) -> None:
        await asyncio.sleep(0.2)
        if what == "new":
            await one.probe()
        elif what == "older":
            storage.probe_as_an_older_release()

    for what in ("new", "older"):
        acting = asyncio.ensure_future(later(what))
        found = await database.in_use(0.6)
        await acting
        assert found, what
        assert storage.sees_open_files or PROBES in found, what
    assert PROBES not in await database.in_use(0.1)


@on_each_engine
async def test_a_watch_takes_neither_its_own_probes_nor_those_of_nobody_for_a_servers(storage: Storage) -> None:
    one, nobody = await storage.client(entry=ONE), await storage.client()
    other = await storage.client(entry=OTHER)

    async def later() -> None:
        await asyncio.sleep(0.1)
        await one.probe()
        await nobody.probe()
        await storage.close(other)

    acting = asyncio.ensure_future(later())
    assert PROBES not in await one.in_use(0.5)
    await acting


# --- what can be announced -------------------------------------------------------------------------------------------


@pytest.mark.any_engine
@pytest.mark.parametrize(
    "bad",
    [
        {"instance": "x'"},
        {"instance": "AB"},
        {"instance": "a" * 65},
        {"release": ""},
        {"release": "1'; DROP TABLE _servers; --"},
        {"release": "1" * 65},
        {"kinds": ("a,b", "c'")},
        {"kinds": ("",)},
        {"kinds": ("Ticket",)},
        {"kinds": tuple(f"kind_{number}" for number in range(300))},
        {"probe_interval": float("inf")},
        {"probe_interval": float("nan")},
        {"probe_interval": -1.0},
        {"at": float("nan")},
    ],
)
def test_what_no_database_could_keep_is_no_entry(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        replace(ONE, **bad)  # type: ignore[arg-type]
