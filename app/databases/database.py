"""One ticket database: its connections, their deadlines and lives, and the calls that share a statement."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from app.databases.address import Address
from app.databases.connections import Connections
from app.databases.life import find_life
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

MOST = 2
"""Connections that keep the notebook, and that see to the counters. While one waits for an answer, the calls that
gather meanwhile go out on the other. A locked table, which holds up the counters, holds up no mark."""
MOST_DRAWING = 4
"""Connections that draw. A server that commits each sequence by itself flushes those of several of them together."""


class Database:
    """One entry of the list of ticket databases.

    Every method ends within the database timeout, connecting included. It raises NoAnswer where the database takes
    longer; whether the statement took effect is then unknown. The descriptions in `Session` hold here as well. Every
    method may also raise:

    - OtherLife: the database is in another life than `life`, or was found in another life before the answer counted.
    - DatabaseFailed, DatabaseRefused: no connection could be opened, or the login was refused.

    A statement whose caller is cancelled is aborted, except where other callers wait for the same statement.
    """

    def __init__(self, address: Address, connect: Connect, timeout: float) -> None:
        """Connect to nothing yet.

        address: where the database is. connect: opens a session of its engine. timeout: the database timeout, in
        seconds.
        """
        self._address, self._nodes = address, address.nodes
        self._place = self._used = 0
        """The node that is tried next, and the one that answered the last look."""
        self._connect = connect
        self._timeout = timeout
        self._life = ""
        self._residue = Residue(1, 1)
        self._looking = self._connections(lambda: self._session(None), 1)  # finds its life with each look
        self._drawing = self._connections(lambda: self._open(self._residue), MOST_DRAWING)
        self._keeping = self._connections(lambda: self._open(None), MOST)
        self._counting = self._connections(lambda: self._open(None), MOST)

    @property
    def name(self) -> str:
        """host:port, for people."""
        return self._address.name

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._looking) + sum(map(len, self._of_a_life))

    async def look(self, server: str, beat: Note) -> tuple[Look, str]:
        """Write this server's heartbeat, read what a look reads, and return it with the life of the database.

        Where the life is another one than before, the other connections and the calls on them end. Where the node in
        use fails, the others are tried in their order, each for the database timeout.
        """

        async def call(session: Session) -> tuple[Look, str]:
            look = await session.look(server, beat)
            return look, await find_life(session, look)

        for left in range(len(self._nodes) - 1, -1, -1):
            try:
                look, life = await self._looking.run(call, None)
                break
            except DatabaseError:
                self._place = (self._place + 1) % len(self._nodes)
                if not left:
                    raise
        self._used = self._place
        self._found(life)
        return look, life

    @property
    def node(self) -> str | None:
        """host:port of the node in use; None where the database has one node only."""
        return self._nodes[self._used].name if len(self._nodes) > 1 else None

    def prefer(self, names: Collection[str], *, earlier: bool) -> bool:
        """Let the next look try a node that other servers use, and return whether there is one.

        earlier: only one that stands before the node in use.
        """
        for place, address in enumerate(self._nodes[: self._used] if earlier else self._nodes):
            if address.name in names and place != self._place:
                self._place = place
                self._looking.end(DatabaseFailed("another node of it is tried"))
                return True
        return False

    async def draw(self, want: Want, residue: Residue, life: str) -> Drawn:
        """Draw for one sequence; where the connections are busy, together with others that wait.

        The result may have fewer ids than were wanted if `want.count` is above `most_ids` of the increment. Another
        residue than that of the last call ends the draws under way. Raises also SequenceError, for this sequence alone.
        """
        if residue != self._residue:
            self._residue = residue
            self._drawing.end(DatabaseFailed("the draw was ended, because another residue is drawn now"))
        if want.count > (most := most_ids(residue.increment)):
            want = want._replace(count=most)
        drawn = (await self._drawing.share(_draw, (want,), residue, life))[0]
        if isinstance(drawn, DatabaseError):
            raise drawn
        return drawn

    async def mark(self, mark: Mark, stamp: str, life: str) -> Marked:
        """Raise one mark. See `Session.mark`."""
        return (await self._keeping.share(_mark, (mark,), stamp, life))[0]

    async def sequences(self, names: Sequence[str] | None, life: str) -> dict[str, Counter | DatabaseError]:
        """See `Session.sequences`."""
        if names is None:
            return await self._counting.run(lambda session: session.sequences(None), life)
        found = await self._counting.share(_sequences, names, None, life)
        return {name: counter for name, counter in zip(names, found, strict=True) if counter is not None}

    async def make(self, name: str, bits: int, above: int, life: str) -> None:
        """See `Session.make`."""
        await self._counting.run(lambda session: session.make(name, bits, above), life)

    async def raise_above(self, floors: Mapping[str, int], life: str) -> dict[str, DatabaseError | None]:
        """See `Session.raise_above`."""
        return dict(zip(floors, await self._counting.share(_raise, list(floors.items()), None, life), strict=True))

    async def read(self, book: Book, names: Sequence[str], life: str) -> dict[str, Note]:
        """See `Session.read`."""
        rows = await self._keeping.share(_read, names, book, life)
        return {name: row for name, row in zip(names, rows, strict=True) if row is not None}

    async def page(self, book: Book, after: str, count: int, life: str) -> list[tuple[str, Note]]:
        """See `Session.page`."""
        return await self._keeping.run(lambda session: session.page(book, after, count), life)

    async def read_ring(self, life: str) -> RingRow:
        """See `Session.read_ring`."""
        return await self._keeping.run(lambda session: session.read_ring(), life)

    async def write_ring(self, old: RingRow, new: RingRow, life: str) -> bool:
        """See `Session.write_ring`."""
        return await self._keeping.run(lambda session: session.write_ring(old, new), life)

    async def write(self, writes: Sequence[Write], stamp: str | None, life: str) -> list[bool]:
        """See `Session.write`."""
        return list(await self._keeping.share(_write, writes, stamp, life))

    async def close(self) -> None:
        """End every connection and every call. No call works afterwards."""
        for connections in (self._looking, *self._of_a_life):
            await connections.close()

    # --- connections -------------------------------------------------------------------------------------------------

    @property
    def _of_a_life(self) -> tuple[Connections, ...]:
        """All but the connection for looks."""
        return self._drawing, self._keeping, self._counting

    def _connections(self, connect: Callable[[], Awaitable[Session]], most: int) -> Connections:
        return Connections(connect, most, self._timeout, self._check)

    def _check(self, life: str) -> None:
        """Raise OtherLife where another life was found last. Every open connection belongs to the life found last."""
        if self._life and life != self._life:
            raise OtherLife()

    async def _session(self, residue: Residue | None) -> Session:
        return await self._connect(self._nodes[self._place], residue, self._timeout)

    async def _open(self, residue: Residue | None) -> Session:
        """Open a connection, and find the life that it belongs to."""
        session = await self._session(residue)
        try:
            session.life = await find_life(session)
        except BaseException:
            session.abort()
            raise
        self._found(session.life)
        return session

    def _found(self, life: str) -> None:
        """Note the life that was found. Connections of other lives end, and the calls on them fail."""
        if life != self._life:
            self._life = life
            for connections in self._of_a_life:
                connections.end(OtherLife(), life)


async def _draw(session: Session, wanted: Sequence[Want], residue: Residue) -> Sequence[Drawn | DatabaseError]:
    if session.residue != residue:  # it was being opened when another residue was asked for
        raise DatabaseFailed("the draw was ended, because its connection draws another residue")
    return await session.draw(wanted)


async def _mark(session: Session, marks: Sequence[Mark], stamp: str) -> Sequence[Marked]:
    return await session.mark(marks, stamp)


async def _write(session: Session, writes: Sequence[Write], stamp: str | None) -> Sequence[bool]:
    return await session.write(writes, stamp)


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
