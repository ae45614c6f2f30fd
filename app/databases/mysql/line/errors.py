"""From MySQL's and MariaDB's errors to ours. The driver's message stays at `__cause__` and goes nowhere else."""

from app.common.errors import (
    ColumnExhausted,
    SequenceMissing,
    SequenceUnavailable,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseUnavailable,
)

RETRIED = frozenset({1205, 1213, 1317})
"""Lock wait, deadlock, query killed. The statement had no effect and the connection stays good."""

MISSING_TABLE = 1146

KEEPS_CONNECTION = RETRIED | {167, 1264, 1467, MISSING_TABLE}
"""After these a connection that sent one plain statement is as it was before."""

NO_FURTHER_CONNECTION = frozenset({1040, 1203, 1226})
"""Where a new connection is refused with these, the server is well and those that are open go on."""

_BUSY = {
    1205: "waited too long for a lock",
    1213: "deadlocked again and again",
    1317: "had the statement killed",
}
_EXHAUSTED = {
    167: "holds no further id in its column",
    1264: "holds no further id in its column",
    1467: "cannot draw a further id",
    1690: "holds no further id in its column",
}
_SEQUENCE = {
    126: "has a damaged table for it",
    127: "has a damaged table for it",
    134: "has a damaged table for it",
    144: "has a damaged table for it",
    145: "has a damaged table for it",
    1030: "cannot use its table: the storage engine reports an error",
    1034: "has a damaged table for it",
    1054: "has a table for it without the columns id and stub",
    1142: "does not allow this user to draw from its table",
    1143: "does not allow this user to draw from its table",
    1194: "has a damaged table for it",
    1195: "has a damaged table for it",
    1364: "has a table for it that requires other columns",
    1812: "has lost its tablespace",
    1814: "has discarded its tablespace",
    1877: "has a damaged table for it",
    1932: "has a damaged table for it",
}
_DATABASE = {
    1021: "has a full disk",
    1040: "has too many connections",
    1041: "is out of memory",
    1044: "does not allow this user into the database",
    1045: "refuses the user or password",
    1049: "has no such database",
    1053: "is shutting down",
    1114: "has a full disk or table",
    1129: "blocks this host after too many failed connections",
    1130: "does not allow connections from this host",
    1203: "has too many connections of this user",
    1226: "has no resources left for this user",
    1251: "requires an authentication method that the driver lacks",
    1290: "is read-only",
    1698: "refuses the user or password",
    1792: "is read-only",
    1836: "is read-only",
    1862: "requires the password to be changed",
    2003: "refuses connections",
    2006: "has gone away",
    2013: "broke the connection off",
    2061: "refuses the user or password",
    3032: "is offline",
    3118: "has locked the account",
    3159: "requires TLS",
    3989: "is read-only",
    4031: "closed the idle connection",
}


def translated(code: int) -> TicketDatabaseError:
    """The error for one of MySQL's codes, in our words; the database's name is added where it is shown."""
    if code in _BUSY:
        return TicketDatabaseBusy(_BUSY[code])
    if code in _EXHAUSTED:
        return ColumnExhausted(_EXHAUSTED[code])
    if code == MISSING_TABLE:
        return SequenceMissing("has no table for it")
    if code in _SEQUENCE:
        return SequenceUnavailable(_SEQUENCE[code])
    return TicketDatabaseUnavailable(_DATABASE.get(code, f"answered with error {code}"))
