"""What the ring records say against the settings and against the databases themselves (rule 6): decisions, no I/O.

`agree` says which database is in, why another one is not, and which single write comes next. `changes` carries that
write out and asks again. So every write of a change rests on a decision of its own, and any server may go on where
another one stopped.

A change of the ring is a record with the next number. A server writes it first on the database of the lowest offset
that stays; that write decides between servers. Then every other database that stays is brought up to it. A body that is
taken in gets the record last.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from app.databases.record import Body, Record, State
from app.tickets.heartbeats import Server, Use
from app.tickets.situation import Agreement, Entry, Kind, Situation, Standing, Step, Verdict, read_record

IN_SIGHT = 10.0
"""Seconds for which the databases that stay have to be in sight before a body is taken in."""
STILL = 5.0
"""Seconds after which an unfinished forming, or a growth without a sign of `ticketd grow`, belongs to nobody.

A record stands for as long before it is replaced by a record that takes a body in. By then the server that wrote it has
shown what it draws from."""

Verdicts = dict[int, Verdict]
Owns = dict[int, Record | None]
"""The record that each database has itself, by offset. A database that does not answer, or whose record is damaged, is
left out."""


def agree(now: Situation) -> Agreement:
    """Decide how each database stands, and what to write next."""
    owns, verdicts = _read(now)
    records = [(offset, own) for offset, own in owns.items() if own is not None]
    number = max([now.number, *(own.number for _, own in records)])
    now = replace(now, number=number)
    settled = [(offset, own) for offset, own in records if own.state is not State.FORMING]
    if now.seen is None and not settled:
        step = _form(now, owns, verdicts)
        return Agreement(None, verdicts, step, None, number)
    ring = now.seen.ring if now.seen is not None else _ring_of(now, settled)
    if ring is None:
        reason = "the listed databases record different rings: take those out of the list that do not belong here"
        _judge_others(verdicts, owns, Standing.QUARANTINED, reason)
        return Agreement(None, verdicts, None, None, number)
    seen = [now.seen] if now.seen is not None else []
    record = max([*seen, *(own for _, own in settled if own.ring == ring)], key=lambda each: each.rank)
    if now.increment not in {None, record.increment}:
        reason = (
            f"the recorded increment of the ring is {record.increment}, and TICKETS_INCREMENT is {now.increment}: "
            f"unset it, or run `ticketd grow --increment {now.increment}`"
        )
        _judge_others(verdicts, owns, Standing.QUARANTINED, reason)
        return Agreement(None, verdicts, None, record, number)
    for offset, own in owns.items():
        verdicts[offset] = _judge(now, _entry(now, offset), own, record)
    hindrance = _hindrance(now, verdicts, record)
    for offset, verdict in verdicts.items():
        if verdict.standing in {Standing.NEW, Standing.UNFINISHED}:
            wait = f", once {hindrance}" if hindrance else ""
            verdicts[offset] = Verdict(verdict.standing, f"is taken into the ring{wait}")
    return Agreement(record, verdicts, _next_step(now, verdicts, record, hindrance), record, number)


def _read(now: Situation) -> tuple[Owns, Verdicts]:
    """Read the records, and judge the entries that have none to read."""
    owns: Owns = {}
    verdicts: Verdicts = {}
    for entry in now.entries:
        if entry.row is None:
            standing = Standing.QUARANTINED if entry.refused else Standing.DOWN
            verdicts[entry.offset] = Verdict(standing, entry.failure)
            continue
        try:
            owns[entry.offset] = read_record(entry.row.stamp, entry.row.text)
        except ValueError:
            reason = "its ring record is damaged: restore this database, or replace it by an empty one"
            verdicts[entry.offset] = Verdict(Standing.QUARANTINED, reason)
    return owns, verdicts


def _ring_of(now: Situation, settled: Sequence[tuple[int, Record]]) -> str | None:
    """Return the word of the ring for a server that has seen none since its start; None where that is undecided.

    If the databases record different rings, it is the ring to which most of them belong at their place in the list.
    """
    rings = {own.ring for _, own in settled}
    if len(rings) == 1:
        return rings.pop()
    fitting = Counter(own.ring for offset, own in settled if own.offset_of(_body(now, offset)) == offset).most_common(2)
    undecided = not fitting or (len(fitting) == 2 and fitting[0][1] == fitting[1][1])
    return None if undecided else fitting[0][0]


# --- a ring that is not formed yet ------------------------------------------------------------------------------------


def _form(now: Situation, owns: Owns, verdicts: Verdicts) -> Step | None:
    """Form the ring once every listed database answers; no database has a record yet, or only of a forming."""
    increment = now.increment or len(now.entries)
    for offset in owns:
        twin = _twin(now, _entry(now, offset))
        if twin is not None:
            verdicts[offset] = Verdict(Standing.QUARANTINED, f"is the same data as {twin}")
    step, reason = None, "the ring is being formed"
    if verdicts:
        missing = ", ".join(_entry(now, offset).name for offset in sorted(verdicts))
        reason = f"no ring is formed yet: every listed database has to answer once, and {missing} cannot be used"
    else:
        step = _forming_step(now, owns, increment)
        if step is None:
            reason = "a server with another list forms a ring here: give all servers the same list"
        above = [offset for offset in owns if offset > increment]
        _judge_others(verdicts, above, Standing.QUARANTINED, _above(increment))
    _judge_others(verdicts, owns, Standing.WAITS, reason)
    return step


def _forming_step(now: Situation, owns: Owns, increment: int) -> Step | None:
    """Go on with a forming that has the same list, or begin one; None while a forming with another list moves."""
    words = [(offset, _body(now, offset)) for offset in owns if offset <= increment]
    begun = max((own for own in owns.values() if own is not None), key=lambda own: own.rank, default=None)
    if begun is not None and now.increment in {None, begun.increment}:
        lacking = [offset for offset, _ in words if owns[offset] != begun]
        if [(body.offset, body.word) for body in begun.bodies] == words:
            if lacking:
                return Step(Kind.FORM, lacking[0], begun)
            drawn = replace(begun, number=now.number + 1, writer=now.word, state=State.DRAWN)
            return Step(Kind.DRAW, words[0][0], drawn)
    if any(owns[entry.offset] is not None and entry.unchanged_for < STILL for entry in now.entries):
        return None
    number = now.number + 1
    bodies = tuple(Body(offset, word, number) for offset, word in words)
    return Step(Kind.FORM, words[0][0], Record(now.word, number, now.word, increment, State.FORMING, bodies))


# --- a ring that is there ---------------------------------------------------------------------------------------------


def _judge(now: Situation, entry: Entry, own: Record | None, record: Record) -> Verdict:
    """Return how a database that answers stands, by the first row of the table that fits."""
    assert entry.row is not None
    body, offset = entry.row.body, entry.offset
    reason = None
    user: tuple[Server, Use | None] | None
    twin = _twin(now, entry)
    drawn_at = record.offset_of(body) or entry.row.offset
    in_use = record.at(offset)
    is_in = in_use is not None and in_use.word == body
    if twin is not None:
        reason = f"is the same data as {twin}"
    elif own is not None and own.state is not State.FORMING and own.ring != record.ring:
        reason = (
            "belongs to another ring than the one that this server has drawn in since its start: list the database "
            "that belongs here, or an empty one"
        )
    elif offset > record.increment:
        reason = _above(record.increment)
    elif drawn_at not in {0, offset}:
        reason = f"was drawn at offset {drawn_at}, and TICKETS_DATABASES lists it at {offset}: restore the order"
    elif is_in and (user := _user_of_another_life(now, entry, body)) is not None:
        reason = f"waits until this data is in use nowhere else, nor as it was before a restart: {_draws_from(*user)}"
    elif not is_in and (user := _user_of_another_body(now, entry, body)) is not None:
        reason = f"holds other data than the database in use at offset {offset}: {_draws_from(*user)}"
    if reason is not None:
        return Verdict(Standing.QUARANTINED, reason)
    if is_in and own == record:
        return Verdict(Standing.IN)
    if is_in and own is not None and own.ring == record.ring and own.at(offset) == in_use:
        is_changing = record.state is State.CHANGING
        return Verdict(Standing.LAGS, "waits for the end of a growth" if is_changing else "gets the ring's record")
    # A database that came back from before its body was taken in lost the change, too.
    return Verdict(Standing.UNFINISHED if is_in and record.state is not State.CHANGING else Standing.NEW)


def _next_step(now: Situation, verdicts: Verdicts, record: Record, hindrance: str) -> Step | None:
    """Return the next write towards one ring on all databases."""
    decides = verdicts[1].standing
    stay, lagging, unfinished, new = (
        [offset for offset, verdict in sorted(verdicts.items()) if verdict.standing is standing]
        for standing in (Standing.IN, Standing.LAGS, Standing.UNFINISHED, Standing.NEW)
    )
    if record.state is State.CHANGING:
        if now.grow_quiet >= STILL and decides in {Standing.IN, Standing.LAGS}:
            back = replace(record, number=now.number + 1, writer=now.word, state=State.DRAWN)
            return Step(Kind.TAKE_BACK, 1, back)
        if now.grow_quiet < STILL or decides is not Standing.NEW:
            return None
    if lagging:
        return Step(Kind.BRING_UP, lagging[0], record)
    if new and not hindrance:
        bodies = {body.offset: body for body in record.bodies}
        bodies |= {offset: Body(offset, _body(now, offset), now.number + 1) for offset in new}
        ordered = tuple(bodies[offset] for offset in sorted(bodies))
        taken = replace(record, number=now.number + 1, writer=now.word, state=State.DRAWN, bodies=ordered)
        return Step(Kind.TAKE_IN, stay[0], taken)
    if unfinished and not hindrance:
        return Step(Kind.FINISH, unfinished[0], record, record.offsets)
    return None


def _hindrance(now: Situation, verdicts: Verdicts, record: Record) -> str:
    """Return what has to come true before a body is taken in, or before that is finished; empty if that may be done."""
    until = {Standing.QUARANTINED: "can be used", Standing.DOWN: "can be used", Standing.LAGS: "has the ring's record"}
    for offset in record.offsets:
        if offset not in verdicts:
            return f"TICKETS_DATABASES lists the database of offset {offset}, which is in use, as well"
        if verdicts[offset].standing in until:
            return f"{_entry(now, offset).name} {until[verdicts[offset].standing]}"
    stay = [entry for entry in now.entries if verdicts[entry.offset].standing is Standing.IN]
    begins = any(verdict.standing is Standing.NEW for verdict in verdicts.values())
    for entry in stay:
        body = record.at(entry.offset)
        if not begins and body is not None and body.since == record.number:
            continue  # the same change took it in
        if entry.in_sight_for < IN_SIGHT:
            return f"{entry.name} has been in sight for {IN_SIGHT:.0f} s"
        if begins and entry.unchanged_for < STILL:
            return f"the ring has stood for {STILL:.0f} s"
    if stay:
        return ""
    return (
        "a database of the ring that this server has drawn from is back; if none is left, restart all ticket servers, "
        "which forms a new ring, and bump every sequence above what was issued"
    )


# --- single questions -------------------------------------------------------------------------------------------------


def _entry(now: Situation, offset: int) -> Entry:
    return next(entry for entry in now.entries if entry.offset == offset)


def _body(now: Situation, offset: int) -> str:
    row = _entry(now, offset).row
    assert row is not None
    return row.body


def _judge_others(
    verdicts: Verdicts, offsets: Sequence[int] | Mapping[int, object], standing: Standing, why: str
) -> None:
    """Judge the databases of these offsets that are not judged yet."""
    for offset in offsets:
        verdicts.setdefault(offset, Verdict(standing, why))


def _twin(now: Situation, entry: Entry) -> str | None:
    """Return the name of an earlier entry that has the same body."""
    for earlier in now.entries:
        if earlier.offset < entry.offset and earlier.row and entry.row and earlier.row.body == entry.row.body:
            return earlier.name
    return None


def _user_of_another_life(now: Situation, entry: Entry, body: str) -> tuple[Server, Use | None] | None:
    """Return a live server that uses this body in another life, with what it uses.

    Of two servers that use two lives already, the server whose name comes first keeps its own. This server also keeps
    its own while it has never seen the other one's row move.
    """
    for server in now.servers:
        keeps = entry.used and (now.me < (server.name, server.word) or not server.has_moved)
        for use in server.said.lives.values() if server.said is not None else ():
            if use.body == body and use.life != entry.life and not keeps:
                return server, use
    return None


def _user_of_another_body(now: Situation, entry: Entry, body: str) -> tuple[Server, Use | None] | None:
    """Return a live server that uses another body at this offset, or that may do so, because its row is damaged."""
    for server in now.servers:
        use = server.said.lives.get(entry.offset) if server.said is not None else None
        if server.said is None or (use is not None and use.body != body):
            return server, use
    return None


def _draws_from(server: Server, use: Use | None) -> str:
    if use is None:
        return f"{server.name} has a heartbeat that cannot be read"
    return f"{server.name} draws from {use.node}" if use.node else f"{server.name} draws from"


def _above(increment: int) -> str:
    return f"its offset is above the ring's increment, {increment}: run `ticketd grow`, or take it out of the list"
