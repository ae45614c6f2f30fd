"""One offset, one body of data: whether a server may draw from the body that a ticket database holds.

A body of data is what a database holds, wherever the database runs. The ring record names the body in use at each
offset by a number and a random word, and each database records the word of its own body. A server takes a body in by
changing the ring. It chooses a new word, and records it under the next number, on the other databases first and on the
body itself last. From then on every database refuses the marks of a server that still uses another body at that
offset, because that server sends the old number.

A body that has the word in use under another incarnation has been restarted. A server takes it in at once under a new
word. A copy beside its original looks like a restart, too. Then the server that uses the original finds that the word
in use has changed while the original still has the old one, and stops drawing from the original.

Any other body has to wait while a server announces that it uses a body at that offset. With every probe each server
announces, on every database that it reaches, which bodies it uses.
"""

import secrets
from collections.abc import Collection, Iterable, Mapping

from app.databases.protocol import Body, ProbeResult, RingRecord, Use, place_named
from app.tickets.ring.ring import Member


def holders(record: RingRecord, results: Mapping[Member, ProbeResult], members: Iterable[Member]) -> dict[Member, str]:
    """The databases whose body has to wait because another server uses another body at their offset. Returns the
    reason for each, which names that server and body.

    `results`: of the databases that answer. `members`: all databases of the ring. While a database cannot be asked, the
    announcements that it showed last still stand, since the server cannot see whether they have ended. If a single
    database answers, it may have been exchanged, so the announcements seen there before stand as well.
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
    """Whether the database holds the body that the ring record names at its offset, or the record names none."""
    body = record.body_at(member.database.offset)
    return body is None or body.word == _word(result)


def is_being_taken_in(record: RingRecord, known: RingRecord | None, member: Member, result: ProbeResult) -> bool:
    """Whether another server seems to be taking this very body in after a restart: it has recorded the body's new word
    on another database, and not yet on the body itself.

    `known`: the ring that this server drew in last. A body at the same address that has been exchanged may look so,
    too.
    """
    offset, body = member.database.offset, record.body_at(member.database.offset)
    before = None if known is None else known.body_at(offset)
    return (
        body is not None
        and before is not None
        and body.place == place_named(member.name)
        and before.word == _word(result) != body.word
    )


def new_bodies(record: RingRecord, results: Mapping[Member, ProbeResult]) -> dict[int, Body]:
    """The bodies that a server has to take in, under new words, before it draws from these databases; by offset."""
    return {
        member.database.offset: Body(record.number + 1, secrets.token_hex(8), place_named(member.name))
        for member, result in results.items()
        if not (record.body_at(member.database.offset) and is_in_use(record, member, result))
        or result.record is None
        or result.record.life != result.incarnation
    }


def _word(result: ProbeResult) -> str:
    return "" if result.record is None else result.record.body
