"""The ring record of a file of the embedded pair, the bodies of data in it, and the servers that use the file."""

import sqlite3

from app.databases.protocol import OLDER, OLDER_SECONDS, USE_INTERVALS, Body, RingRecord, RingState, ServerEntry, Use

_RING = "SELECT number, increment_of, since, offsets, own_offset, state FROM _ring WHERE id = 1"
OWN_BODY = 0
"""The `offset_of` of the row that says which body the file itself holds."""


def record_in(connection: sqlite3.Connection) -> RingRecord | None:
    """The ring that this file records; None where it records none."""
    ring = earlier_record_in(connection)
    if ring is None:
        return None
    bodies = {offset: rest for offset, *rest in connection.execute("SELECT * FROM _bodies")}
    _, word, _, life = bodies.pop(OWN_BODY, (0, "", "", ""))
    increments = connection.execute("SELECT increments FROM _ring_more").fetchone() or ("",)
    heard = sorted((offset, Body(number, word, place)) for offset, (number, word, place, _) in bodies.items())
    former = tuple(sorted(set(_numbers(increments[0])) - {ring.increment}))
    return RingRecord(
        ring.number, ring.increment, ring.since, ring.offsets, ring.own, ring.state, tuple(heard), word, life, former
    )


def earlier_record_in(connection: sqlite3.Connection) -> RingRecord | None:
    """The part of it that files of every release have."""
    row = connection.execute(_RING).fetchone()
    if row is None:
        return None
    number, increment, since, offsets, own, state = row
    return RingRecord(number, increment, since, _numbers(offsets), own, RingState(state))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(",") if each)


def write_record(connection: sqlite3.Connection, new: RingRecord) -> None:
    """Record this ring, whatever is recorded."""
    offsets = ",".join(map(str, new.offsets))
    row = (new.number, new.increment, new.since, offsets, new.own, str(new.state))
    connection.execute("INSERT OR REPLACE INTO _ring VALUES (1, ?, ?, ?, ?, ?, ?)", row)
    connection.execute("DELETE FROM _bodies")
    heard = [(offset, body.number, body.word, body.place, "") for offset, body in new.bodies]
    bodies = [(OWN_BODY, 0, new.body, "", new.life), *heard]
    connection.executemany("INSERT INTO _bodies VALUES (?, ?, ?, ?, ?)", bodies)
    increments = ",".join(map(str, (new.increment, *new.former)))
    connection.execute(
        "INSERT OR REPLACE INTO _ring_more (id, number, increments) VALUES (1, ?, ?)", (new.number, increments)
    )
    connection.execute("UPDATE _database SET increment = ?", (new.increment,))


def announce(connection: sqlite3.Connection, entry: ServerEntry, now: float) -> None:
    """Write what a ticket server announces. `now`: seconds since 1970."""
    row = (entry.instance, entry.release, ",".join(entry.kinds), entry.probe_interval, entry.reserve_window, now)
    connection.execute("INSERT OR REPLACE INTO _servers VALUES (?, ?, ?, ?, ?, ?)", row)
    connection.execute("DELETE FROM _in_use WHERE instance = ?", row[:1])
    uses = [(0, "", "", ""), *((use.offset, use.word, use.place, use.server) for use in entry.uses or ())]
    rows = [(entry.instance, *use, entry.probe_interval, now) for use in uses]
    connection.executemany("INSERT INTO _in_use VALUES (?, ?, ?, ?, ?, ?, ?)", rows)


def forget(connection: sqlite3.Connection, instance: str) -> None:
    """Take away what a ticket server has announced."""
    for table in ("_in_use", "_servers"):
        connection.execute(f"DELETE FROM {table} WHERE instance = ?", (instance,))  # noqa: S608


def standing_uses_in(connection: sqlite3.Connection, but: str, now: float) -> tuple[Use, ...]:
    """The announcements of all ticket servers but this instance that stand at `now`, in seconds since 1970."""
    rows = connection.execute(
        "SELECT offset_of, word, place, server FROM _in_use "
        "WHERE instance <> ? AND word <> '' AND ABS(at - ?) <= probe_interval * ?",
        (but, now, USE_INTERVALS),
    )
    return tuple(Use(*row) for row in rows)


def older_in(connection: sqlite3.Connection, now: float) -> tuple[str, ...]:
    """The releases of the ticket servers of the last OLDER_SECONDS that do not announce what they use."""
    since = now - OLDER_SECONDS
    said = "SELECT 1 FROM _in_use AS said WHERE said.instance = _servers.instance"
    rows = connection.execute(
        f"SELECT of_release FROM _servers WHERE at >= ? AND NOT EXISTS ({said}) "  # noqa: S608
        "UNION SELECT ? FROM _database WHERE probed >= ?",
        (since, OLDER, since),
    )
    return tuple(sorted(release for (release,) in rows))


def servers_in(connection: sqlite3.Connection, since: float) -> list[ServerEntry]:
    """The ticket servers that have probed the file since then."""
    rows = connection.execute("SELECT * FROM _servers WHERE at >= ?", (since,)).fetchall()
    rows += connection.execute("SELECT '', ?, '', 0, 0, probed FROM _database WHERE probed >= ?", (OLDER, since))
    return [
        ServerEntry(instance, release, tuple(kinds.split(",")) if kinds else (), interval, window, at)
        for instance, release, kinds, interval, window, at in rows
    ]
