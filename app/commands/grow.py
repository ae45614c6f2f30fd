"""`ticketd grow`: changes the increment of the ring while no ticket server runs.

It connects to every database of the new ring, refuses while a ticket server is running on any of them, and changes the
ring as `agreement/changes` describes. If it is interrupted, no server draws in the ring until it has been run again to
its end.
"""

import asyncio
from collections.abc import Callable, Mapping

from app.common.errors import TicketDatabaseError, TicketDatabaseMisconfigured, TicketError
from app.databases.protocol import ProbeResult, RingRecord, RingState, TicketDatabase, check_settings
from app.tickets.agreement.changes import DatabaseFailed, change_ring, holds_anything
from app.tickets.agreement.record import begun


class GrowthRefused(TicketError):
    """The ring was not changed. `left`: what has to be done first, one line each."""

    def __init__(self, left: list[str]) -> None:
        super().__init__("; ".join(left))
        self.left = left


async def grow(
    databases: list[TicketDatabase], increment: int, say: Callable[[str], None], watched: float
) -> RingRecord:
    """Change the ring to these databases and this increment. Returns the new ring's record.

    `say` receives the progress, line by line. `watched`: seconds for which each database is watched for running ticket
    servers. Raises GrowthRefused; it may then be run again.
    """
    probed = await _probe_all(databases)
    try:
        _refuse(await _contradictions(probed, increment))
    except DatabaseFailed as failed:
        raise GrowthRefused([f"{failed}: every database of the new ring has to be up"]) from failed
    setting = "/".join(sorted({found.setting_names[0] for found in probed.values()}))
    say(f"all {len(databases)} databases answer with {setting}={increment} and their offsets")
    say(f"watching them for {watched:g} s for running ticket servers")
    _refuse(await _alive(databases, watched))
    change = _change_to(probed, increment)
    try:
        return await change_ring({database: found.record for database, found in probed.items()}, change, say)
    except DatabaseFailed as failed:
        raise GrowthRefused([f"{failed}; fix it and run this again: no server draws until then"]) from failed


def _refuse(left: list[str]) -> None:
    if left:
        raise GrowthRefused(left)


async def _probe_all(databases: list[TicketDatabase]) -> dict[TicketDatabase, ProbeResult]:
    answers = await asyncio.gather(*(database.probe() for database in databases), return_exceptions=True)
    probed: dict[TicketDatabase, ProbeResult] = {}
    left = []
    for database, answer in zip(databases, answers, strict=True):
        if isinstance(answer, TicketDatabaseError):
            left.append(f"{database.name} {answer}: every database of the new ring has to be up")
        elif isinstance(answer, BaseException):
            raise answer
        else:
            probed[database] = answer
    identities = [found.identity for found in probed.values()]
    if len(set(identities)) < len(identities):
        left.append("two of the URLs lead to one server: name another server in TICKETS_DATABASES")
    _refuse(left)
    return probed


async def _contradictions(probed: Mapping[TicketDatabase, ProbeResult], increment: int) -> list[str]:
    """The reasons that rule out this ring on these databases, whatever their positions."""
    left = []
    for database, found in probed.items():
        try:
            check_settings(found, increment, database.offset)
        except TicketDatabaseMisconfigured as error:
            left.append(f"{database.name} {error}: set it in its configuration and restart it")
        record = found.record
        if record is not None and record.own != database.offset and await holds_anything(database):
            left.append(
                f"{database.name} was drawn at offset {record.own}, and TICKETS_DATABASES lists it at "
                f"{database.offset}: databases keep their order, new ones are listed after them, and only the last "
                "can be removed"
            )
    return left


async def _alive(databases: list[TicketDatabase], watched: float) -> list[str]:
    try:
        found = await asyncio.gather(*(database.in_use(watched) for database in databases))
    except TicketDatabaseError as error:
        raise GrowthRefused([f"a database {error} while it was watched: run this again"]) from error
    return [
        f"{database.name} is in use by {user}: stop every ticket server first, and end those that are frozen"
        for database, users in zip(databases, found, strict=True)
        for user in users
    ]


def _change_to(probed: Mapping[TicketDatabase, ProbeResult], increment: int) -> RingRecord:
    """The record that begins the change, under a number above every recorded one."""
    records = [found.record for found in probed.values() if found.record is not None]
    return begun(records, increment, [database.offset for database in probed], RingState.GROWING)
