"""The life of a ticket database: a word that changes whenever its data may have gone back unseen.

The database keeps the word of its present life in a row of LIVES for each machine that runs it: `high` is the second in
which the machine started, `text` the births of the server's own tables with the number under which the body was taken
in, `tenure` the word. Where the start or the text differ from what a server finds, the server writes a new word. All
servers read the same row, so they name the same life by the same word.
"""

from app.databases.record import new_word, read_record
from app.databases.session import Book, Look, Note, RingRow, Session, Write
from app.errors import DatabaseFailed

TOLERANCE = 2
"""Seconds by which two readings of one start may differ: some engines compute it, from a clock in whole seconds."""
ATTEMPTS = 5
"""How often a server tries to write the row while other servers change it."""


async def find_life(session: Session, look: Look | None = None) -> str:
    """Return the word of the present life, and write it first where it is a new one.

    look: what the session has just found; None where it has to read that. Raises what `Session` raises, and
    DatabaseRefused where the ring record is damaged.
    """
    facts = look.facts if look is not None else session.facts
    for _ in range(ATTEMPTS):
        if look is not None:
            row, ring, look = look.life, look.ring, None
        else:  # the row no later than the ring row, as in a look
            row = (await session.read(Book.LIVES, [facts.machine])).get(facts.machine)
            ring = await session.read_ring()
        present = Note(high=int(facts.started), tenure=new_word(), text=f"{facts.births}|{_taken_in(ring)}")
        if row is not None and row.text == present.text and abs(row.high - present.high) <= TOLERANCE and row.tenure:
            return row.tenure
        if (await session.write([Write(Book.LIVES, facts.machine, row, present)], None))[0]:
            return str(present.tenure)
    raise DatabaseFailed(f"the row of its life was changed by other servers {ATTEMPTS} times while it was written")


def _taken_in(ring: RingRow) -> int:
    """Return the number under which the ring took this body in, 0 where no ring has."""
    record = read_record(ring)
    return next((body.since for body in record.bodies if body.word == ring.body), 0) if record is not None else 0
