"""What the ring records say against the settings and against the databases themselves (rule 6): decisions, no I/O.

An `Agreement` says which database is in, why another one is not, and which single write comes next. The probe carries
that write out and decides again. So every write of a change rests on a decision of its own, and any server may go on
where another one stopped.

A change of the ring is a record with the next number. A server writes it first on the database of the lowest offset
that stays; that write decides between servers. Then every other database that stays is brought up to it. A body that is
taken in gets the record last.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import NamedTuple

from app.databases.record import Body, Record, State, new_word, read_record
from app.errors import DatabaseRefused
from app.tickets.heartbeats import UNREADABLE, Server
from app.tickets.sight import Entry

IN_SIGHT = 10.0
"""Seconds for which the databases that stay have to be in sight before a body is taken in."""
STILL = 5.0
"""Seconds after which an unfinished forming, or a growth without a sign of `ticketd grow`, belongs to nobody.

A record stands for as long before it is replaced by a record that takes a body in. By then the server that wrote it has
shown what it draws from."""


class Standing(Enum):
    """How an entry of the list stands to the ring."""

    IN = "in"
    LAGS = "lags"
    """It stays in the ring, and lacks the highest record."""
    UNFINISHED = "unfinished"
    """The ring has begun to take its body in, and the body has no record of that yet."""
    NEW = "new"
    """Its body may be taken in: as a replacement, or at a free offset."""
    WAITS = "waits"
    """There is no ring yet."""
    QUARANTINED = "quarantined"
    DOWN = "down"


class Verdict(NamedTuple):
    """How an entry stands, and why; the reason is empty where it is in."""

    standing: Standing
    reason: str = ""


class Kind(StrEnum):
    """What a write is for."""

    FORM = "form the ring"
    DRAW = "finish the forming"
    BRING_UP = "bring a database up to the ring's record"
    TAKE_IN = "begin to take bodies in"
    FINISH = "finish to take a body in"
    """Before it, the databases at all offsets of the record have to be made level."""
    TAKE_BACK = "take back what `ticketd grow` left"


@dataclass(frozen=True, slots=True)
class Step:
    """One write: this record on the database of this offset."""

    kind: Kind
    offset: int
    record: Record


@dataclass(eq=False)
class Agreement:
    """One decision, which is made when the object is.

    Attributes:
        entries: the whole list, in the order of offsets.
        increment: TICKETS_INCREMENT, None where it is unset.
        me: this server's name, and the word of its process.
        now: the time by the clock of the entries, in seconds.
        servers: the other live servers.
        seen: the highest record that this server has seen since its start, before and then after the decision.
        grow_quiet: for how many seconds no `ticketd grow` has shown itself; 0 where this is one.
        record: the record to go by; None where this server may not draw at all.
        verdicts: how each entry stands, by its offset.
        step: the write that comes next, None where there is none.
    """

    entries: Sequence[Entry]
    increment: int | None
    me: tuple[str, str]
    now: float = 0.0
    servers: Sequence[Server] = ()
    seen: Record | None = None
    grow_quiet: float = 0.0

    def __post_init__(self) -> None:
        self.record: Record | None = None
        self.step: Step | None = None
        self.verdicts: dict[int, Verdict] = {}
        self._owns: dict[int, Record | None] = {}
        """What each database records itself. One that does not answer, or whose record is damaged, is left out."""
        self._read()
        numbers = [own.number for own in (self.seen, *self._owns.values()) if own is not None]
        self._next_number = max(numbers, default=0) + 1
        known = {offset: own for offset, own in self._owns.items() if own and own.state is not State.FORMING}
        if self.seen is None and not known:
            self._form()
            return
        ring = self.seen.ring if self.seen is not None else self._ring_of(known)
        records = [own for own in (self.seen, *known.values()) if own is not None and own.ring == ring]
        self.seen = record = max(records, key=lambda each: each.rank, default=None)
        if record is not None and self.increment in {None, record.increment}:
            self.record = record
            self._judge_all(record)
            return
        reason = "the listed databases record different rings: take those out of the list that do not belong here"
        if record is not None:
            reason = (
                f"the recorded increment of the ring is {record.increment}, and TICKETS_INCREMENT is "
                f"{self.increment}: unset it, or run `ticketd grow --increment {self.increment}`"
            )
        self.verdicts |= dict.fromkeys(self._owns, Verdict(Standing.QUARANTINED, reason))

    def _read(self) -> None:
        """Read the records, and judge the entries that have none to read."""
        for entry in self.entries:
            error = entry.error
            if entry.row is not None:
                try:
                    self._owns[entry.offset] = read_record(entry.row)
                    continue
                except DatabaseRefused as damaged:
                    error = damaged
            standing = Standing.QUARANTINED if isinstance(error, DatabaseRefused) else Standing.DOWN
            self.verdicts[entry.offset] = Verdict(standing, str(error))

    def _ring_of(self, known: Mapping[int, Record]) -> str | None:
        """Return the word of the ring for a server that has seen none since its start; None where that is undecided.

        If the databases record different rings, it is the ring to which most of them belong at their place in the list.
        """
        votes: Counter[str] = Counter()
        for offset, own in known.items():
            votes[own.ring] += own.offset_of(self.entries[offset - 1].body) == offset
        (ring, most), *others = votes.most_common(2)
        return None if others and others[0][1] == most else ring

    # --- a ring that is not formed yet -------------------------------------------------------------------------------

    def _form(self) -> None:
        """Form the ring once every listed database answers; no database has a record yet, or only of a forming."""
        increment = self.increment or len(self.entries)
        for offset in self._owns:
            if twin := self._twin(self.entries[offset - 1]):
                self.verdicts[offset] = Verdict(Standing.QUARANTINED, twin)
        missing = ", ".join(self.entries[offset - 1].name for offset in sorted(self.verdicts))
        self.step = None if missing else self._forming_step(increment)
        reason = "the ring is being formed"
        if missing:
            reason = f"no ring is formed yet: every listed database has to answer once, and {missing} cannot be used"
        elif self.step is None:
            reason = "a server with another list forms a ring here: give all servers the same list"
        waits, above = Verdict(Standing.WAITS, reason), Verdict(Standing.QUARANTINED, _above(increment))
        for offset in self._owns:
            self.verdicts.setdefault(offset, waits if offset <= increment else above)

    def _forming_step(self, increment: int) -> Step | None:
        """Go on with a forming that has the same list, or begin one; None while a forming with another list moves."""
        words = [(entry.offset, entry.body) for entry in self.entries if entry.offset <= increment]
        begun = max((own for own in self._owns.values() if own is not None), key=lambda own: own.rank, default=None)
        is_ours = begun is not None and self.increment in {None, begun.increment}
        if begun is not None and is_ours and [(body.offset, body.word) for body in begun.bodies] == words:
            for offset, _ in words:
                if self._owns[offset] != begun:
                    return Step(Kind.FORM, offset, begun)
            return Step(Kind.DRAW, words[0][0], begun.next(self._next_number, state=State.DRAWN))
        if any(self._owns[entry.offset] and self.now - entry.row_since < STILL for entry in self.entries):
            return None
        number, word = self._next_number, new_word()
        bodies = tuple(Body(offset, body, number) for offset, body in words)
        return Step(Kind.FORM, words[0][0], Record(word, number, word, increment, State.FORMING, bodies))

    # --- a ring that is there ----------------------------------------------------------------------------------------

    def _judge_all(self, record: Record) -> None:
        """Judge the databases that answer, and find the next write towards one ring on all databases."""
        for offset, own in self._owns.items():
            self.verdicts[offset] = self._judge(self.entries[offset - 1], own, record)
        hindrance = self._hindrance(record)
        reason = f"is taken into the ring, once {hindrance}" if hindrance else "is taken into the ring"
        for offset, (standing, _) in self.verdicts.items():
            if standing in {Standing.NEW, Standing.UNFINISHED}:
                self.verdicts[offset] = Verdict(standing, reason)
        self.step = self._next_step(record, hindrance)

    def _judge(self, entry: Entry, own: Record | None, record: Record) -> Verdict:
        """Return how a database that answers stands, by the first rule here that fits."""
        body, offset, in_use = entry.body, entry.offset, record.at(entry.offset)
        drawn_at = record.offset_of(body) or (entry.row.offset if entry.row is not None else 0)
        is_in = in_use is not None and in_use.word == body
        reason = ""
        if twin := self._twin(entry):
            reason = twin
        elif own is not None and own.state is not State.FORMING and own.ring != record.ring:
            reason = (
                "belongs to another ring than the one that this server has drawn in since its start: list the database "
                "that belongs here, or an empty one"
            )
        elif offset > record.increment:
            reason = _above(record.increment)
        elif drawn_at not in {0, offset}:
            reason = f"was drawn at offset {drawn_at}, and TICKETS_DATABASES lists it at {offset}: restore the order"
        elif user := self._user_of_other_data(entry, is_in):
            waits = "waits until this data is in use nowhere else, nor as it was before a restart"
            holds = f"holds other data than the database in use at offset {offset}"
            reason = f"{waits if is_in else holds}: {user}"
        if reason:
            return Verdict(Standing.QUARANTINED, reason)
        if is_in and own == record:
            return Verdict(Standing.IN)
        is_changing = record.state is State.CHANGING
        if is_in and own is not None and own.ring == record.ring and own.at(offset) == in_use:
            return Verdict(Standing.LAGS, "waits for the end of a growth" if is_changing else "gets the ring's record")
        # A database that came back from before its body was taken in lost the change, too.
        return Verdict(Standing.UNFINISHED if is_in and not is_changing else Standing.NEW)

    def _twin(self, entry: Entry) -> str:
        """Return which earlier entry has the same body, in words; empty where none has."""
        earlier = next(each for each in self.entries if each.body == entry.body)
        return "" if earlier is entry else f"is the same data as {earlier.name}"

    def _user_of_other_data(self, entry: Entry, is_in: bool) -> str:
        """Return which live server draws from other data than this, in words; empty where none does.

        Where this body is in, other data is the same body in another life. Of two servers that use two lives already,
        the server whose name comes first keeps its own. This server also keeps its own while it has never seen the
        other one's row move. Where this body is not in, other data is another body at this offset; a server whose row
        is damaged may use one.
        """
        for server in self.servers:
            if server.said is UNREADABLE and not is_in:
                return f"{server.name} has a heartbeat that cannot be read"
            is_first = self.me < (server.name, server.word) or not server.has_moved
            keeps = is_in and entry.life == entry.found and is_first
            for offset, use in server.said.lives.items() if not keeps else ():
                is_same = use.body == entry.body
                if (is_same and use.life != entry.found) if is_in else (offset == entry.offset and not is_same):
                    return f"{server.name} draws from {use.node}".rstrip()
        return ""

    def _next_step(self, record: Record, hindrance: str) -> Step | None:
        """Return the next write. hindrance: what a taking in has to wait for, in words."""
        first: dict[Standing, int] = {}
        for offset in sorted(self.verdicts, reverse=True):
            first[self.verdicts[offset].standing] = offset
        following = record.next(self._next_number, state=State.DRAWN)
        if record.state is State.CHANGING:
            since = [entry.row_since for entry in self.entries if self._owns.get(entry.offset) == record]
            is_left = min(self.grow_quiet, self.now - min(since, default=self.now)) >= STILL
            decides = self.verdicts[1].standing
            if is_left and decides in {Standing.IN, Standing.LAGS}:
                return Step(Kind.TAKE_BACK, 1, following)
            if not is_left or decides is not Standing.NEW:
                return None
        if Standing.LAGS in first:
            return Step(Kind.BRING_UP, first[Standing.LAGS], record)
        if Standing.NEW in first and not hindrance:
            bodies = {body.offset: body for body in record.bodies}
            for entry in self.entries:
                if self.verdicts[entry.offset].standing is Standing.NEW:
                    bodies[entry.offset] = Body(entry.offset, entry.body, following.number)
            ordered = tuple(bodies[offset] for offset in sorted(bodies))
            return Step(Kind.TAKE_IN, first[Standing.IN], replace(following, bodies=ordered))
        if Standing.UNFINISHED in first and not hindrance:
            return Step(Kind.FINISH, first[Standing.UNFINISHED], record)
        return None

    def _hindrance(self, record: Record) -> str:
        """Return what has to come true before a body is taken in, or that is finished; empty if that may be done."""
        until = dict.fromkeys((Standing.QUARANTINED, Standing.DOWN), "can be used")
        until[Standing.LAGS] = "has the ring's record"
        for offset in record.offsets:
            if offset not in self.verdicts:
                return f"TICKETS_DATABASES lists the database of offset {offset}, which is in use, as well"
            if (standing := self.verdicts[offset].standing) in until:
                return f"{self.entries[offset - 1].name} {until[standing]}"
        stay = [entry for entry in self.entries if self.verdicts[entry.offset].standing is Standing.IN]
        begins = any(verdict.standing is Standing.NEW for verdict in self.verdicts.values())
        for entry in stay:
            body = record.at(entry.offset)
            if not begins and body is not None and body.since == record.number:
                continue  # the same change took it in
            if self.now - entry.steady < IN_SIGHT:
                return f"{entry.name} has been in sight for {IN_SIGHT:.0f} s"
            if begins and self.now - entry.row_since < STILL:
                return f"the ring has stood for {STILL:.0f} s"
        if stay:
            return ""
        return (
            "a database of the ring that this server has drawn from is back; if none is left, restart all ticket "
            "servers, which forms a new ring, and bump every sequence above what was issued"
        )


def _above(increment: int) -> str:
    return f"its offset is above the ring's increment, {increment}: run `ticketd grow`, or take it out of the list"
