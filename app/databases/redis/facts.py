"""What a Redis server says of itself: whether a ticket database can be there, and how durable it is."""

import re
from collections.abc import Mapping
from typing import Any

import hiredis

from app.databases.redis.errors import CLUSTER, translated
from app.databases.session import Facts
from app.errors import DatabaseFailed, DatabaseRefused

INFO = ("INFO",)
SETTINGS = ("CONFIG", "GET", "*append*")
OLDEST = (6, 2)
WANTED = {
    "appendonly": ("yes", "a restart loses what was drawn since the last snapshot"),
    "appendfsync": ("always", "a power cut loses the tickets of the last moments"),
    "no-appendfsync-on-rewrite": ("no", "a power cut while the file is rewritten loses tickets"),
}
"""The settings that make it durable, and what is lost otherwise."""


def read_info(reply: Any) -> dict[str, str]:
    """Return what INFO says, by name. Raises DatabaseError."""
    if isinstance(reply, hiredis.ReplyError):
        raise translated(str(reply))
    return dict(line.split(":", 1) for line in str(reply).splitlines() if ":" in line and not line.startswith("#"))


def check(info: Mapping[str, str]) -> None:
    """Raise DatabaseRefused where this is no server for a ticket database, DatabaseFailed where it takes no writes."""
    version = info.get("redis_version", "")
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < OLDEST:
        raise DatabaseRefused(f"is Redis {version or 'of an unknown version'}: a ticket database needs 6.2 or later")
    if info.get("cluster_enabled") == "1":
        raise DatabaseRefused(CLUSTER)
    if info.get("role") != "master":
        raise DatabaseFailed("is a replica, which is read-only")


def weaknesses(info: Mapping[str, str], settings: Any) -> list[str]:
    """Return what makes it less than durable, in words. settings: the reply to SETTINGS."""
    found = []
    policy = info.get("maxmemory_policy", "")
    if policy.startswith("allkeys"):
        found.append(f"maxmemory-policy is {policy}, which evicts counters: set noeviction")
    if isinstance(settings, hiredis.ReplyError):
        if info.get("aof_enabled") != "1":
            return [*found, f"appendonly is not yes: {WANTED['appendonly'][1]}"]
        return [*found, "its user may not read appendfsync, so it is unknown whether a power cut loses tickets"]
    values = dict(zip(settings[::2], settings[1::2], strict=False))
    wrong = {name: value for name, (value, _) in WANTED.items() if values.get(name) != value}
    if "appendonly" in wrong:
        wrong = {"appendonly": "yes"}
    return found + [f"{name} is not {value}: {WANTED[name][1]}" for name, value in wrong.items()]


def facts_of(info: Mapping[str, str], settings: Any, body: str, now: float) -> Facts:
    """Return the facts. body: of the ring row. now: the server's clock, in seconds since 1970.

    The run and the history of replication both get another word when a server starts, and the history when a replica
    is promoted. So the two name one term in which this data was written to.
    """
    machine = f"{info.get('run_id', '')[:32]}.{info.get('master_replid', '')[:32]}"
    name, version = ("Valkey", info["valkey_version"]) if "valkey_version" in info else ("Redis", info["redis_version"])
    started = now - float(info.get("uptime_in_seconds", "0"))
    return Facts(machine, started, body, now, f"{name} {version}", tuple(weaknesses(info, settings)))
