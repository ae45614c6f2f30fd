"""One ticket database: its connections, their deadlines and lives, and the calls that share a statement."""

from collections.abc import Mapping, Sequence

from app.databases.address import Address
from app.databases.connections import Connections, Sharing
from app.databases.life import find_life, settle_life
from app.databases.session import (
    Book,
    Connect,
    Counter,
    Drawn,
    Look,
    Mark,
    Marked,
    Note,
    Residue,
    RingRow,
    Session,
    Want,
    Write,
    most_ids,
)
from app.errors import DatabaseError, DatabaseFailed, OtherLife

MOST_DRAWING = 2
"""Connections that draw: while one waits for an answer, the draws that gather meanwhile go out on the other."""
MOST_KEEPING = 2
"""Connections for the notebook."""
MOST_COUNTING = 2
"""Connections for the counters, apart from the notebook: a locked table holds up no mark."""


class Database:
    """One entry of the list of ticket databases.

    Every method ends within the database timeout, connecting included. It raises DatabaseFailed ("did not answer within
    0.5 s") where the database takes longer; whether the statement took effect is then unknown. The descriptions in
    `Session` hold here as well. Every method may also raise:

    - OtherLife: the database is in another life than `life`, or was found in another life before the answer counted.
    - DatabaseFailed, DatabaseRefused: no connection could be opened, or the login was refused.

    A statement whose caller is cancelled is aborted, except where other callers wait for the same statement.
    """

    def __init__(self, address: Address, connect: Connect, timeout: float) -> None:
        """Connect to nothing yet.

        address: where the database is. connect: opens a session of its engine. timeout: the database timeout, in
        seconds.
        """
        self._address = address
        self._connect = connect
        self._timeout = timeout
        self._life = ""
        self._closed = False
        self._looking = Connections(self._open_looking, 1, timeout)
        self._keeping = Connections(lambda: self._open(None), MOST_KEEPING, timeout)
        self._counting = Connections(lambda: self._open(None), MOST_COUNTING, timeout)
        self._marks: Sharing[Mark, Marked, str]
        self._marks = Sharing(self._keeping, lambda session, marks, stamp: session.mark(marks, stamp))
        self._writes: Sharing[Write, bool, str | None]
        self._writes = Sharing(self._keeping, lambda session, writes, stamp: session.write(writes, stamp))
        self._reads = Sharing(self._keeping, _read)
        self._counters = Sharing(self._counting, _sequences)
        self._raises = Sharing(self._counting, _raise)
        self._draw_from(Residue(1, 1))

    def __repr__(self) -> str:
        return f"<database {self.name}, {self.connections} connections, life {self._life or 'not known'}>"

    @property
    def name(self) -> str:
        """host:port, for people."""
        return self._address.name

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return sum(len(connections) for connections in self._all)

    async def look(self, server: str, beat: Note) -> tuple[Look, str]:
        """Write this server's heartbeat, read what a look reads, and return it with the life of the database.

        Where the life is another one than before, the other connections and the calls on them end.
        """

        async def call(session: Session) -> tuple[Look, str]:
            look = await session.look(server, beat)
            return look, await settle_life(session, look.facts, look.ring, look.life)

        look, life = await self._looking.run(call, None)
        self._found(life)
        return look, life

    async def draw(self, want: Want, residue: Residue, life: str) -> Drawn:
        """Draw for one sequence; where the connections are busy, together with others that wait.

        The result may have fewer ids than were wanted if `want.count` is above `most_ids` of the increment. Another
        residue than that of the last call ends the draws under way. Raises also SequenceError, for this sequence alone.
        """
        self._check(life)
        if residue != self._residue:
            self._drawing.shut(DatabaseFailed("the draw was ended, because another residue is drawn now"))
            self._draw_from(residue)
        if want.count > self._most_ids:
            want = want._replace(count=self._most_ids)
        drawn = (await self._draws.put((want,), None, life))[0]
        if isinstance(drawn, DatabaseError):
            raise drawn
        return drawn

    async def mark(self, mark: Mark, stamp: str, life: str) -> Marked:
        """Raise one mark. See `Session.mark`."""
        self._check(life)
        return (await self._marks.put((mark,), stamp, life))[0]

    async def sequences(self, names: Sequence[str] | None, life: str) -> dict[str, Counter | DatabaseError]:
        """See `Session.sequences`."""
        self._check(life)
        if names is None:
            return await self._counting.run(lambda session: session.sequences(None), life)
        found = await self._counters.put(names, None, life)
        return {name: counter for name, counter in zip(names, found, strict=True) if counter is not None}

    async def make(self, name: str, bits: int, above: int, life: str) -> None:
        """See `Session.make`."""
        self._check(life)
        await self._counting.run(lambda session: session.make(name, bits, above), life)

    async def raise_above(self, floors: Mapping[str, int], life: str) -> dict[str, DatabaseError | None]:
        """See `Session.raise_above`."""
        self._check(life)
        return dict(zip(floors, await self._raises.put(list(floors.items()), None, life), strict=True))

    async def read(self, book: Book, names: Sequence[str], life: str) -> dict[str, Note]:
        """See `Session.read`."""
        self._check(life)
        rows = await self._reads.put(names, book, life)
        return {name: row for name, row in zip(names, rows, strict=True) if row is not None}

    async def page(self, book: Book, after: str, count: int, life: str) -> list[tuple[str, Note]]:
        """See `Session.page`."""
        self._check(life)
        return await self._keeping.run(lambda session: session.page(book, after, count), life)

    async def read_ring(self, life: str) -> RingRow:
        """See `Session.read_ring`."""
        self._check(life)
        return await self._keeping.run(lambda session: session.read_ring(), life)

    async def write_ring(self, old: RingRow, new: RingRow, life: str) -> bool:
        """See `Session.write_ring`."""
        self._check(life)
        return await self._keeping.run(lambda session: session.write_ring(old, new), life)

    async def write(self, writes: Sequence[Write], stamp: str | None, life: str) -> list[bool]:
        """See `Session.write`."""
        self._check(life)
        return list(await self._writes.put(writes, stamp, life))

    async def close(self) -> None:
        """End every connection and every call. No call works afterwards."""
        self._closed = True
        for connections in self._all:
            await connections.close()

    # --- connections -------------------------------------------------------------------------------------------------

    @property
    def _all(self) -> list[Connections]:
        return [self._looking, self._drawing, self._keeping, self._counting]

    def _check(self, life: str) -> None:
        """Raise OtherLife where another life was found last. Every open connection belongs to the life found last."""
        if self._life and life != self._life:
            raise OtherLife()

    def _draw_from(self, residue: Residue) -> None:
        """Let the connections that draw be of this residue from now on."""
        self._residue = residue
        self._most_ids = most_ids(residue.increment)
        self._drawing = Connections(lambda: self._open(residue), MOST_DRAWING, self._timeout)
        self._draws: Sharing[Want, Drawn | DatabaseError, None]
        self._draws = Sharing(self._drawing, lambda session, wanted, _: session.draw(wanted))

    async def _open_looking(self) -> Session:
        """Open the connection for looks. It finds its life with each look."""
        return await self._connect(self._address, None, self._timeout)

    async def _open(self, residue: Residue | None) -> Session:
        """Open any other connection, and find the life that it belongs to."""
        if self._closed:
            raise DatabaseFailed("the connections to it were closed")
        session = await self._connect(self._address, residue, self._timeout)
        try:
            session.life = await find_life(session)
        except BaseException:
            session.abort()
            raise
        self._found(session.life)
        return session

    def _found(self, life: str) -> None:
        """Note the life that was found. Connections of other lives end, and the calls on them fail."""
        if life == self._life:
            return
        self._life = life
        for connections in self._all:
            if connections is not self._looking:
                connections.end(OtherLife(), life)


async def _read(session: Session, names: Sequence[str], book: Book) -> Sequence[Note | None]:
    rows = await session.read(book, names)
    return [rows.get(name) for name in names]


async def _sequences(session: Session, names: Sequence[str], _key: None) -> Sequence[Counter | DatabaseError | None]:
    found = await session.sequences(names)
    return [found.get(name) for name in names]


async def _raise(session: Session, floors: Sequence[tuple[str, int]], _key: None) -> Sequence[DatabaseError | None]:
    highest: dict[str, int] = {}
    for name, floor in floors:
        highest[name] = max(floor, highest.get(name, 0))
    results = await session.raise_above(highest)
    return [results[name] for name, _ in floors]
