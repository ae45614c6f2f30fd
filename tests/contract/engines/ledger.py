"""A database that keeps marks for the others, and the marks that it keeps."""

from app.databases.protocol import Mark, RingRecord, TicketDatabase
from tests.contract.engines.storages import INCREMENT, Storage

RING = RingRecord(7, INCREMENT, 1, (1, 2), own=1)


async def witness(storage: Storage) -> TicketDatabase:
    """A database that records a ring."""
    database = await storage.client()
    assert await database.record_ring(None, RING) == RING
    return database


async def kept(database: TicketDatabase) -> set[Mark]:
    """All marks that the database keeps; every question for marks has to agree on them."""
    marks = await database.marks()
    assert sorted(marks, key=repr) == sorted(await database.marks_of_all_rings(), key=repr)
    assert set(await database.marks(3600)) <= set(marks)
    assert len(set(marks)) == len(marks)
    return set(marks)
