"""What `ticketd doctor` finds in a Redis ticket database. To find it changes nothing there."""

import time
from functools import partial

from app.databases.examination import Examination, Severity
from app.databases.redis.scripts import PREFIX
from app.databases.redis.session import UNREADABLE, RedisSession, log_in, read_facts
from app.databases.redis.url import RedisAddress
from app.errors import DatabaseError


async def examine(address: RedisAddress, seconds: float) -> Examination:
    """Examine a database. Raises DatabaseFailed, DatabaseRefused where it cannot be logged in to, or not be used."""
    started = time.monotonic()
    line = await log_in(address, seconds)
    try:
        elapsed, began = time.monotonic() - started, time.time()
        known = await read_facts(line)
        found = Examination(known.version, known.machine, began, known.now, time.time(), elapsed)
        for weakness in known.warnings:
            found.add(Severity.UNKNOWN if weakness == UNREADABLE else Severity.WRONG, "settings", weakness)
        truncated, info = await line.call(("CONFIG", "GET", "aof-load-truncated"), ("INFO", "replication"))
        note = partial(found.add, Severity.NOTE)
        if "yes" in str(truncated):
            note("settings", "aof-load-truncated is yes, which loads a file that was cut short: set it to no")
        if address.tls is None:
            note("connection", "it is not encrypted: use rediss:// and ssl_ca_certs in its URL")
        if "connected_slaves:0" not in str(info):
            note("replication", "a replica promoted behind counts as a database that came back older, and skips ids")
        session = RedisSession(line, known, None)
        try:
            if await line.ask("EXISTS", f"{PREFIX}ring"):
                await found.read(session)
            found.counters = await session.sequences(None, fresh="")
        except DatabaseError as error:
            found.unread = str(error)
        return found
    finally:
        line.abort()
