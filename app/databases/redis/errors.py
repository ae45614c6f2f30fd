"""From the errors of Redis to ours. The server's own message goes nowhere else."""

from app.errors import DatabaseError, DatabaseFailed, DatabaseRefused

CLUSTER = "is a Redis Cluster, which spreads keys over servers: name a server that runs without cluster-enabled"
_REFUSED = {
    "NOPERM": "does not give this user the commands or keys that a ticket server needs: see deploy/redis/users.acl",
    "WRONGTYPE": "has a key that begins with {tickets}: and is of another type: rename that key",
    "MOVED": CLUSTER,
    "ASK": CLUSTER,
    "CROSSSLOT": CLUSTER,
    "CLUSTERDOWN": CLUSTER,
}
_FAILED = {
    "NOAUTH": "refuses the user or password",
    "WRONGPASS": "refuses the user or password",
    "READONLY": "is a replica, which is read-only",
    "MASTERDOWN": "is a replica without its primary",
    "OOM": "is out of memory: see maxmemory there",
    "LOADING": "is loading its data",
    "MISCONF": "cannot write its data to the disk (MISCONF)",
    "NOREPLICAS": "has too few replicas to write (min-replicas-to-write)",
    "BUSY": "is busy with a script of somebody else",
    "DENIED": "takes only clients of its own machine (protected-mode)",
}


def translated(message: str) -> DatabaseError:
    """Return our error for one of Redis, whose first word says what it is."""
    word = message.partition(" ")[0]
    if word in _REFUSED:
        return DatabaseRefused(_REFUSED[word])
    if message.startswith("ERR max number of clients"):
        return DatabaseFailed("has too many connections")
    if message.startswith("ERR DB index"):
        return DatabaseFailed("has no such database")
    if message.startswith("ERR Client sent AUTH") or message.startswith("ERR AUTH"):
        return DatabaseFailed("refuses the user or password: it has no password")
    return DatabaseFailed(_FAILED.get(word, "answered with an error that this release does not know"))
