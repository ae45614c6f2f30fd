"""What `ticketd doctor` finds in a Redis ticket database. To find it changes nothing there."""

import time

import hiredis

from app.databases.address import Address
from app.databases.examination import Examination, Severity
from app.databases.redis import facts, scripts
from app.databases.redis.session import RedisSession, log_in
from app.databases.redis.url import RedisAddress
from app.errors import DatabaseError


async def examine(address: Address, seconds: float) -> Examination:
    """Examine a database. Raises DatabaseFailed, DatabaseRefused where it cannot be logged in to, or not be used."""
    assert isinstance(address, RedisAddress)
    started = time.monotonic()
    line = await log_in(address, seconds)
    try:
        elapsed, began = time.monotonic() - started, time.time()
        reply, settings, now, truncated = await line.call(
            facts.INFO, facts.SETTINGS, ("TIME",), ("CONFIG", "GET", "aof-load-truncated")
        )
        info = facts.read_info(reply)
        known = facts.facts_of(info, settings, "", int(now[0]) + int(now[1]) / 1e6)
        found = Examination(known.version, known.machine, began, known.now, time.time(), elapsed)
        for weakness in facts.weaknesses(info, settings):
            severity = Severity.UNKNOWN if isinstance(settings, hiredis.ReplyError) else Severity.WRONG
            found.add(severity, "settings", weakness)
        if isinstance(truncated, list) and "yes" in truncated:
            text = "aof-load-truncated is yes: a file that was cut short loads without an error. Set it to no"
            found.add(Severity.NOTE, "settings", text)
        if not address.encrypts:
            found.add(Severity.NOTE, "connection", "it is not encrypted: use rediss:// and ssl_ca_certs in its URL")
        if info.get("connected_slaves", "0") != "0":
            text = (
                "one of its replicas that is promoted behind counts as a database that came back older, and skips ids"
            )
            found.add(Severity.NOTE, "replication", text)
        try:
            if await line.ask("EXISTS", f"{scripts.PREFIX}ring"):
                await found.read(RedisSession(line, None))
            found.counters = await RedisSession(line, None).counters(None, fresh="")
        except DatabaseError as error:
            found.unread = str(error)
        return found
    finally:
        line.abort()
