"""Ask all databases in sight at the same time, and lose sight of those that fail."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from app.databases.session import Book, Note, Write
from app.errors import DatabaseError
from app.tickets.sight import Member, Sight

T = TypeVar("T")

ROUNDS = 20
"""How often a server reads rows and tries to raise them, while others change them at the same moment."""
PACKET = 500
"""The most reads or writes in one packet."""
PAGE = 1_000
"""How many rows of a book a server reads at a time, so that no lane waits for long."""


def lives_in_sight(sight: Sight) -> dict[Member, str]:
    """Return the members in sight with their lives, in the order of their offsets."""
    return {member: life for member in sight.members if (life := member.life) is not None}


async def everywhere(
    sight: Sight, lives: Mapping[Member, str], call: Callable[[Member, str], Awaitable[T]]
) -> dict[Member, T]:
    """Await this call for each member in its life, all at the same time, and return the results by member.

    A member whose call raises a DatabaseError is left out. It goes out of sight, unless it is in another life by then.
    """
    results = await asyncio.gather(*(call(member, life) for member, life in lives.items()), return_exceptions=True)
    found: dict[Member, T] = {}
    for member, result in zip(lives, results, strict=True):
        if isinstance(result, DatabaseError):
            sight.failed(member, result, lives[member])
        elif isinstance(result, BaseException):
            raise result
        else:
            found[member] = result
    return found


async def raise_rows(member: Member, life: str, book: Book, highs: Mapping[str, int], *, stamp: str) -> bool:
    """Raise `high` of these rows of a book to these numbers, at least; a row that is not there counts as 0.

    stamp: the ring number under which the database takes the writes. Returns False where the database has another ring
    number, or where others changed a row in each of several tries. Raises DatabaseError.
    """
    names = sorted(highs)
    for _ in range(ROUNDS):
        rows = await read_rows(member, life, book, names)
        writes = [
            Write(book, name, rows.get(name), rows.get(name, Note())._replace(high=highs[name]))
            for name in names
            if rows.get(name, Note()).high < highs[name]
        ]
        names = await write_rows(member, life, writes, stamp)
        if not names:
            return True
    return False


async def read_rows(member: Member, life: str, book: Book, names: Sequence[str]) -> dict[str, Note]:
    """Return the rows of these names that a book of one database has. Raises DatabaseError."""
    found: dict[str, Note] = {}
    for packet in _packets(names):
        found |= await member.database.read(book, packet, life)
    return found


async def write_rows(member: Member, life: str, writes: Sequence[Write], stamp: str) -> list[str]:
    """Write rows of one database, and return the names of those that were not as expected. Raises DatabaseError."""
    missed: list[str] = []
    for packet in _packets(writes):
        done = await member.database.write(packet, stamp, life)
        missed += [each.name for each, is_done in zip(packet, done, strict=True) if not is_done]
    return missed


def _packets(items: Sequence[T]) -> Iterable[Sequence[T]]:
    return (items[start : start + PACKET] for start in range(0, len(items), PACKET))


async def all_rows(member: Member, life: str, book: Book) -> dict[str, Note]:
    """Return all rows of a book of one database, by name. Raises DatabaseError."""
    found: dict[str, Note] = {}
    last: str | None = ""
    while last is not None:
        page = await member.database.page(book, last, PAGE, life)
        found.update(page)
        last = page[-1][0] if len(page) == PAGE else None
    return found
