"""What the ring records say against the settings and against the databases themselves (rule 6): decisions, no I/O.

`agree` says which database is in, why another one is not, and which single write comes next. The probe carries that
write out and asks again. So every write of a change rests on a decision of its own, and any server may go on where
another one stopped.

A change of the ring is a record with the next number. A server writes it first on the database of the lowest offset
that stays; that write decides between servers. Then every other database that stays is brought up to it. A body that is
taken in gets the record last.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from app.databases.record import Body, Record, State
from app.tickets.situation import Agreement, Entry, Kind, Situation, Standing, Step, Verdict, read_record

IN_SIGHT = 10.0
"""Seconds for which the databases that stay have to be in sight before a body is taken in."""
STILL = 5.0
"""Seconds after which an unfinished forming, or a growth without a sign of `ticketd grow`, belongs to nobody.

A record stands for as long before it is replaced by a record that takes a body in. By then the server that wrote it has
shown what it draws from."""

Verdicts = dict[int, Verdict]
Owns = Mapping[int, Record | None]
"""The record that each database has itself, by offset. A database that does not answer, or whose record is damaged, is
left out."""


def agree(now: Situation) -> Agreement:
    """Decide how each database stands, and what to write next."""
    owns, verdicts = _read(now)
    number = max([now.number, *(own.number for own in owns.values() if own is not None)])
    now = replace(now, number=number)
    known = {offset: own for offset, own in owns.items() if own is not None and own.state is not State.FORMING}
    if now.seen is None and not known:
        return Agreement(None, verdicts, _form(now, owns, verdicts), None, number)
    ring = now.seen.ring if now.seen is not None else _ring_of(now, known)
    records = [own for own in (now.seen, *known.values()) if own is not None and own.ring == ring]
    record = max(records, key=lambda each: each.rank, default=None)
    reason = ""
    if record is None:
        reason = "the listed databases record different rings: take those out of the list that do not belong here"
    elif now.increment not in {None, record.increment}:
        reason = (
            f"the recorded increment of the ring is {record.increment}, and TICKETS_INCREMENT is {now.increment}: "
            f"unset it, or run `ticketd grow --increment {now.increment}`"
        )
    if record is None or reason:
        verdicts |= dict.fromkeys(owns, Verdict(Standing.QUARANTINED, reason))
        return Agreement(None, verdicts, None, record, number)
    verdicts |= {offset: _judge(now, now.entries[offset - 1], own, record) for offset, own in owns.items()}
    stood = max((entry.unchanged_for for entry in now.entries if owns.get(entry.offset) == record), default=0.0)
    now = replace(now, grow_quiet=min(now.grow_quiet, stood))
    hindrance = _hindrance(now, verdicts, record)
    for offset, (standing, _) in verdicts.items():
        if standing in {Standing.NEW, Standing.UNFINISHED}:
            wait = f", once {hindrance}" if hindrance else ""
            verdicts[offset] = Verdict(standing, f"is taken into the ring{wait}")
    return Agreement(record, verdicts, _next_step(now, verdicts, record, hindrance), record, number)


def _read(now: Situation) -> tuple[dict[int, Record | None], Verdicts]:
    """Read the records, and judge the entries that have none to read."""
    owns: dict[int, Record | None] = {}
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


def _ring_of(now: Situation, known: Mapping[int, Record]) -> str | None:
    """Return the word of the ring for a server that has seen none since its start; None where that is undecided.

    If the databases record different rings, it is the ring to which most of them belong at their place in the list.
    """
    votes: Counter[str] = Counter()
    for offset, own in known.items():
        votes[own.ring] += own.offset_of(now.entries[offset - 1].body) == offset
    (ring, most), *others = votes.most_common(2)
    return None if others and others[0][1] == most else ring


# --- a ring that is not formed yet ------------------------------------------------------------------------------------


def _form(now: Situation, owns: Owns, verdicts: Verdicts) -> Step | None:
    """Form the ring once every listed database answers; no database has a record yet, or only of a forming."""
    increment = now.increment or len(now.entries)
    for offset in owns:
        if twin := _twin(now, now.entries[offset - 1]):
            verdicts[offset] = Verdict(Standing.QUARANTINED, twin)
    missing = ", ".join(now.entries[offset - 1].name for offset in sorted(verdicts))
    step = None if missing else _forming_step(now, owns, increment)
    reason = "the ring is being formed"
    if missing:
        reason = f"no ring is formed yet: every listed database has to answer once, and {missing} cannot be used"
    elif step is None:
        reason = "a server with another list forms a ring here: give all servers the same list"
    waits, above = Verdict(Standing.WAITS, reason), Verdict(Standing.QUARANTINED, _above(increment))
    for offset in owns:
        verdicts.setdefault(offset, waits if offset <= increment else above)
    return step


def _forming_step(now: Situation, owns: Owns, increment: int) -> Step | None:
    """Go on with a forming that has the same list, or begin one; None while a forming with another list moves."""
    words = [(entry.offset, entry.body) for entry in now.entries if entry.offset <= increment]
    begun = max((own for own in owns.values() if own is not None), key=lambda own: own.rank, default=None)
    is_ours = begun is not None and now.increment in {None, begun.increment}
    if begun is not None and is_ours and [(body.offset, body.word) for body in begun.bodies] == words:
        for offset, _ in words:
            if owns[offset] != begun:
                return Step(Kind.FORM, offset, begun)
        drawn = replace(begun, number=now.number + 1, writer=now.word, state=State.DRAWN)
        return Step(Kind.DRAW, words[0][0], drawn)
    if any(owns[entry.offset] is not None and entry.unchanged_for < STILL for entry in now.entries):
        return None
    number = now.number + 1
    bodies = tuple(Body(offset, word, number) for offset, word in words)
    return Step(Kind.FORM, words[0][0], Record(now.word, number, now.word, increment, State.FORMING, bodies))


# --- a ring that is there ---------------------------------------------------------------------------------------------


def _judge(now: Situation, entry: Entry, own: Record | None, record: Record) -> Verdict:
    """Return how a database that answers stands, by the first rule here that fits."""
    body, offset, in_use = entry.body, entry.offset, record.at(entry.offset)
    drawn_at = record.offset_of(body) or (entry.row.offset if entry.row is not None else 0)
    is_in = in_use is not None and in_use.word == body
    reason = ""
    if twin := _twin(now, entry):
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
    elif user := _user_of_other_data(now, entry, is_in):
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


def _twin(now: Situation, entry: Entry) -> str:
    """Return which earlier entry has the same body, in words; empty where none has."""
    earlier = next(each for each in now.entries if each.body == entry.body)
    return "" if earlier is entry else f"is the same data as {earlier.name}"


def _user_of_other_data(now: Situation, entry: Entry, is_in: bool) -> str:
    """Return which live server draws from other data than this, in words; empty where none does.

    Where this body is in, other data is the same body in another life. Of two servers that use two lives already, the
    server whose name comes first keeps its own. This server also keeps its own while it has never seen the other one's
    row move. Where this body is not in, other data is another body at this offset; a server whose row is damaged may
    use one.
    """
    for server in now.servers:
        if server.said is None and not is_in:
            return f"{server.name} has a heartbeat that cannot be read"
        keeps = is_in and entry.used and (now.me < (server.name, server.word) or not server.has_moved)
        for offset, use in server.said.lives.items() if server.said is not None and not keeps else ():
            is_same = use.body == entry.body
            if (is_same and use.life != entry.life) if is_in else (offset == entry.offset and not is_same):
                return f"{server.name} draws from {use.node}".rstrip()
    return ""


def _next_step(now: Situation, verdicts: Verdicts, record: Record, hindrance: str) -> Step | None:
    """Return the next write towards one ring on all databases."""
    first: dict[Standing, int] = {}
    for offset in sorted(verdicts, reverse=True):
        first[verdicts[offset].standing] = offset
    following = replace(record, number=now.number + 1, writer=now.word, state=State.DRAWN)
    if record.state is State.CHANGING:
        decides = verdicts[1].standing
        if now.grow_quiet >= STILL and decides in {Standing.IN, Standing.LAGS}:
            return Step(Kind.TAKE_BACK, 1, following)
        if now.grow_quiet < STILL or decides is not Standing.NEW:
            return None
    if Standing.LAGS in first:
        return Step(Kind.BRING_UP, first[Standing.LAGS], record)
    if Standing.NEW in first and not hindrance:
        new = [entry for entry in now.entries if verdicts[entry.offset].standing is Standing.NEW]
        bodies = {body.offset: body for body in record.bodies}
        bodies |= {entry.offset: Body(entry.offset, entry.body, following.number) for entry in new}
        ordered = tuple(bodies[offset] for offset in sorted(bodies))
        return Step(Kind.TAKE_IN, first[Standing.IN], replace(following, bodies=ordered))
    if Standing.UNFINISHED in first and not hindrance:
        return Step(Kind.FINISH, first[Standing.UNFINISHED], record, record.offsets)
    return None


def _hindrance(now: Situation, verdicts: Verdicts, record: Record) -> str:
    """Return what has to come true before a body is taken in, or before that is finished; empty if that may be done."""
    until = {Standing.QUARANTINED: "can be used", Standing.DOWN: "can be used", Standing.LAGS: "has the ring's record"}
    for offset in record.offsets:
        if offset not in verdicts:
            return f"TICKETS_DATABASES lists the database of offset {offset}, which is in use, as well"
        if (standing := verdicts[offset].standing) in until:
            return f"{now.entries[offset - 1].name} {until[standing]}"
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


def _above(increment: int) -> str:
    return f"its offset is above the ring's increment, {increment}: run `ticketd grow`, or take it out of the list"
