"""One ticket database: its connections, their deadlines and lives, and the calls that share a statement."""

from collections.abc import Collection, Mapping, Sequence

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
from app.errors import DatabaseError, DatabaseFailed

MOST = 2
"""Connections that keep the notebook, and that see to the counters. While one waits for an answer, the calls that
gather meanwhile go out on the other. A locked table, which holds up the counters, holds up no mark."""
LONGEST_LIST = 10.0
"""Seconds that a list of all sequences may take: nobody waits for it."""
MOST_DRAWING = 4
"""Connections that draw. A server that commits each sequence by itself flushes those of several of them together."""
ANOTHER_RESIDUE = "the draw was ended, because another residue is drawn now"


class Database:
    """One entry of the list of ticket databases.

    Every method ends within the database timeout, connecting included. It raises NoAnswer where the database takes
    longer; whether the statement took effect is then unknown. The descriptions in `Session` hold here as well. Every
    method may also raise:

    - OtherLife: the database is in another life than `life`, or was found in another life before the answer counted.
    - DatabaseFailed, DatabaseRefused: no connection could be opened, or the login was refused.

    A statement whose caller is cancelled is aborted, unless it was sent for several callers together.
    """

    def __init__(self, address: Address, connect: Connect, timeout: float) -> None:
        """Connect to nothing yet.

        address: where the database is. connect: opens a session of its engine. timeout: the database timeout, in
        seconds.
        """
        self.name = address.name
        """host:port, for people."""
        self._nodes = address.nodes
        self._place = self._used = 0
        """The node that is tried next, and the one that answered the last look."""
        self._connect, self._timeout = connect, timeout
        self._residue = Residue(1, 1)
        # A session that looks finds the life with each look.
        self._looking = Connections(lambda: connect(self._nodes[self._place], None, timeout), 1, timeout)
        self._drawing = Connections(lambda: self._open(self._residue), MOST_DRAWING, timeout)
        self._keeping = Connections(lambda: self._open(None), MOST, timeout)
        self._counting = Connections(lambda: self._open(None), MOST, timeout)
        self._of_a_life = self._drawing, self._keeping, self._counting

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._looking) + sum(map(len, self._of_a_life))

    async def look(self, server: str, beat: Note, residue: Residue | None = None) -> tuple[Look, str]:
        """Write this server's heartbeat, read what a look reads, and return it with the life of the database.

        residue: what is drawn here; None where that is not known. A database that contradicts it is refused. Where the
        life is another one than before, the other connections and the calls on them end. Where the node in use fails,
        the others are tried in their order, each for the database timeout.
        """

        async def call(session: Session) -> tuple[Look, str]:
            session.residue = residue
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
            self._drawing.end(DatabaseFailed(ANOTHER_RESIDUE))
        if want.count > (most := most_ids(residue.increment)):
            want = want._replace(count=most)
        found, place = await self._drawing.share(residue, lambda session, wants: session.draw(wants), (want,), life)
        drawn = found[place]
        if isinstance(drawn, DatabaseError):
            raise drawn
        return drawn

    async def mark(self, mark: Mark, stamp: str, life: str) -> Marked:
        """Raise one mark, as `Session.mark` does several."""
        key = Mark, stamp
        found, place = await self._keeping.share(key, lambda session, marks: session.mark(marks, stamp), (mark,), life)
        return found[place]

    async def sequences(self, names: Sequence[str] | None, life: str) -> dict[str, Counter | DatabaseError]:
        if names is None:
            return await self._counting.run(lambda session: session.sequences(None), life, LONGEST_LIST)
        found, _ = await self._counting.share("sequences", lambda session, names: session.sequences(names), names, life)
        return {name: found[name] for name in names if name in found}

    async def make(self, name: str, bits: int, above: int, life: str) -> None:
        await self._counting.run(lambda session: session.make(name, bits, above), life)

    async def raise_above(self, floors: Mapping[str, int], life: str) -> dict[str, DatabaseError | None]:
        send = lambda session, rows: session.raise_above(dict(sorted(rows)))  # noqa: E731  # the largest of a name wins
        found, _ = await self._counting.share("raise", send, list(floors.items()), life)
        return {name: found[name] for name in floors}

    async def read(self, book: Book, names: Sequence[str], life: str) -> dict[str, Note]:
        found, _ = await self._keeping.share(book, lambda session, names: session.read(book, names), names, life)
        return {name: found[name] for name in names if name in found}

    async def page(self, book: Book, after: str, count: int, life: str) -> list[tuple[str, Note]]:
        return await self._keeping.run(lambda session: session.page(book, after, count), life)

    async def read_ring(self, life: str) -> RingRow:
        return await self._keeping.run(lambda session: session.read_ring(), life)

    async def write_ring(self, old: RingRow, new: RingRow, life: str) -> bool:
        return await self._keeping.run(lambda session: session.write_ring(old, new), life)

    async def write(self, writes: Sequence[Write], stamp: str | None, life: str) -> list[bool]:
        key = Write, stamp
        found, place = await self._keeping.share(key, lambda session, these: session.write(these, stamp), writes, life)
        return found[place : place + len(writes)]

    async def close(self) -> None:
        """End every connection and every call. No call works afterwards."""
        for connections in (self._looking, *self._of_a_life):
            await connections.close()

    # --- connections -------------------------------------------------------------------------------------------------

    async def _open(self, residue: Residue | None) -> Session:
        """Open a connection, and find the life that it belongs to."""
        session = await self._connect(self._nodes[self._place], residue, self._timeout)
        try:
            session.life = await find_life(session)
            if residue not in (None, self._residue):
                raise DatabaseFailed(ANOTHER_RESIDUE)
        except BaseException:
            session.abort()
            raise
        self._found(session.life)
        return session

    def _found(self, life: str) -> None:
        """Note the life that was found. Connections of other lives end, and the calls on them fail."""
        for connections in self._of_a_life:
            connections.follow(life)
