"""From MySQL's and MariaDB's error numbers to our errors. The driver's message stays at `__cause__`."""

from collections.abc import Callable
from functools import partial

from app import errors

DENIED = frozenset({1044, 1142, 1143})
READ_ONLY = frozenset({1290, 1792, 1836, 3989})
REFUSES_CONNECTIONS = 2003
_DAMAGED = (126, 127, 134, 144, 145, 1030, 1034, 1054, 1194, 1195, 1364, 1812, 1814, 1877, 1932)
_unusable = partial(partial, errors.SequenceUnusable)
_OF_SEQUENCE: dict[int, Callable[[], errors.SequenceError]] = {
    # Lock wait, deadlock, query killed: the statement had no effect, and the connection stays good.
    **dict.fromkeys((1205, 1213, 1317), errors.SequenceBusy),
    **dict.fromkeys((167, 1264, 1467, 1690), errors.SequenceExhausted),
    **dict.fromkeys(_DAMAGED, _unusable("its table is damaged, or was altered: see the server's log, and CHECK TABLE")),
    **dict.fromkeys((1142, 1143), _unusable("its user lacks a privilege: GRANT CREATE, SELECT, INSERT, DELETE on it")),
    1146: errors.SequenceMissing,
}
_WORDS = {
    **dict.fromkeys((1021, 1114), "has a full disk"),
    **dict.fromkeys((1040, 1203, 1226), "has no connection left for its user"),
    **dict.fromkeys((1045, 1698, 2061), "refuses the user or password"),
    **dict.fromkeys((1142, 1143), "lacks a privilege: GRANT SELECT, INSERT, UPDATE, DELETE, CREATE on its database"),
    **dict.fromkeys(READ_ONLY, "is read-only"),
    **dict.fromkeys((2006, 2013, 4031), "broke the connection off"),
    1041: "is out of memory",
    1044: "does not allow its user into the database",
    1047: "is a cluster's node that is cut off",
    1049: "has no such database",
    1053: "is shutting down",
    1129: "blocks this host after too many failed connections: FLUSH HOSTS there",
    1130: "does not allow connections from this host",
    1146: "has lost the ticket server's own tables",
    1153: "refuses a large statement: raise its max_allowed_packet",
    1193: "is too old: it has to be MySQL 8.0, MariaDB 10.6 or later",
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
    """The server answered a statement with an error.

    number: MySQL's. wrong: what the error means if the statement was about one sequence; None if that cannot be.
    """

    def __init__(self, number: int) -> None:
        super().__init__(words(number))
        self.number = number
        make = _OF_SEQUENCE.get(number)
        self.wrong = make and make()


def words(number: int) -> str:
    """Return what an error means for the whole database; its name is added where it is shown."""
    return _WORDS.get(number, f"answered with error {number}")
