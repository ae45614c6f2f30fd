"""From MySQL's and MariaDB's error codes to our errors. The driver's message stays at `__cause__`."""

from app import errors

BUSY = frozenset({1205, 1213, 1317})
"""Lock wait, deadlock, query killed: the statement had no effect, and the connection stays good."""
OUT_OF_RANGE = 1264
"""A number that its column cannot hold."""
DENIED = frozenset({1044, 1142, 1143})
REFUSES_CONNECTIONS = 2003
_EXHAUSTED = frozenset({167, OUT_OF_RANGE, 1467, 1690})
_MISSING = 1146
_UNUSABLE = {
    **dict.fromkeys(
        (126, 127, 134, 144, 145, 1034, 1194, 1195, 1877, 1932), "its table is damaged: restore or drop it"
    ),
    **dict.fromkeys((1142, 1143), "its user may not draw from its table: GRANT SELECT, INSERT, DELETE on it"),
    **dict.fromkeys((1812, 1814), "its table has lost its tablespace: restore or drop it"),
    1030: "its storage engine reports an error: see the server's log",
    1054: "its table lacks the column id or stub",
    1364: "its table requires further columns: give them defaults",
}
_WORDS = {
    **dict.fromkeys((1021, 1114), "has a full disk"),
    **dict.fromkeys((1040, 1203, 1226), "has no connection left for its user"),
    **dict.fromkeys((1045, 1698, 2061), "refuses the user or password"),
    **dict.fromkeys((1142, 1143), "lacks a privilege: GRANT SELECT, INSERT, UPDATE, DELETE, CREATE on its database"),
    **dict.fromkeys((1290, 1792, 1836, 3989), "is read-only"),
    **dict.fromkeys((2006, 2013, 4031), "broke the connection off"),
    1041: "is out of memory",
    1044: "does not allow its user into the database",
    1047: "is a cluster's node that is cut off",
    1049: "has no such database",
    1053: "is shutting down",
    1129: "blocks this host after too many failed connections: FLUSH HOSTS there",
    1130: "does not allow connections from this host",
    _MISSING: "has lost the ticket server's own tables",
    1153: "refuses a large statement: raise its max_allowed_packet",
    1205: "waited too long for a lock",
    1213: "deadlocked again and again",
    1317: "had a statement killed",
    1862: "requires its user to change the password",
    REFUSES_CONNECTIONS: "refuses connections, or no address of its host answers",
    3032: "is offline",
    3118: "has locked the account",
    3159: "requires TLS: set ssl-mode=REQUIRED in its URL",
}


class StatementFailed(errors.DatabaseFailed):
    """The server answered a statement with an error. `number`: MySQL's."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.number = code


def words(code: int) -> str:
    """Return what an error means for the whole database; its name is added where it is shown."""
    return _WORDS.get(code, f"answered with error {code}")


def sequence_error(code: int) -> errors.SequenceError | None:
    """Return what an error means for the one sequence that the statement drew from; None if it is not about that."""
    if code in _UNUSABLE:
        return errors.SequenceUnusable(_UNUSABLE[code])
    if code in BUSY:
        return errors.SequenceBusy()
    if code in _EXHAUSTED:
        return errors.SequenceExhausted()
    return errors.SequenceMissing() if code == _MISSING else None
