"""One offset, one body of data: which body a ticket database may be drawn from.

A body is what a database holds, wherever it runs. The ring record names the body in use at each offset, by a number and
a random word, and each database records the word of its own body. A server takes a body in by changing the ring: it
chooses a new word, records that on the other databases first and on the body itself last, all under the next number. So
a server that still holds another body at that offset is refused by its number, at every reservation of a mark.

A body whose word is the one in use, under another incarnation, is that body's restart: it is taken in at once, under a
new word. A copy beside its original cannot be told from a restart, so the server that holds the original finds that
the word has changed and the original's has not, and lets the original go.

Any other body waits while a server announces that it uses one at that offset. Each server announces what it uses on
every database that it reaches, with every probe.
"""

import secrets
from collections.abc import Collection, Iterable, Mapping

from app.databases.protocol import Body, ProbeResult, RingRecord, Use, place_named
from app.tickets.ring.ring import Member


def holders(record: RingRecord, results: Mapping[Member, ProbeResult], members: Iterable[Member]) -> dict[Member, str]:
    """The databases whose body may not be taken in, since another server uses another body at their offset, and which
    server and body that is, in words.

    `members`: all databases of the ring. What one of them announced last stands while it cannot be asked: nobody can
    tell whether the server has let go. Where one database answers alone, it may be another one than before, so what was
    last announced in its place stands as well.
    """
    last = {member: member.probe_result for member in members if member.probe_result is not None}
    heard = [
        *results.values(),
        *(result for member, result in last.items() if member not in results or len(results) == 1),
    ]
    uses = {use for result in heard for use in result.uses}
    refused: dict[Member, str] = {}
    for member, result in results.items():
        if not is_in_use(record, member, result) and (use := _in_the_way(uses, member, result)) is not None:
            refused[member] = (
                f"holds another body of data than the one in use at offset {use.offset}: {use.server} draws from "
                f"{use.place}"
            )
    return refused


def _in_the_way(uses: Collection[Use], member: Member, result: ProbeResult) -> Use | None:
    offset, word = member.database.offset, _word(result)
    others = [use for use in uses if use.offset == offset and use.word != word]
    return min(others, key=lambda use: (use.server, use.place), default=None)


def is_in_use(record: RingRecord, member: Member, result: ProbeResult) -> bool:
    """Whether the database holds the body that the ring record names at its offset, or none is named."""
    body = record.body_at(member.database.offset)
    return body is None or body.word == _word(result)


def new_bodies(record: RingRecord, results: Mapping[Member, ProbeResult]) -> dict[int, Body]:
    """By their offsets, the bodies that have to be taken in before these databases are drawn from, under new words."""
    return {
        member.database.offset: Body(record.number + 1, secrets.token_hex(8), place_named(member.name))
        for member, result in results.items()
        if not (record.body_at(member.database.offset) and is_in_use(record, member, result))
        or result.record is None
        or result.record.life != result.incarnation
    }


def _word(result: ProbeResult) -> str:
    return "" if result.record is None else result.record.body
