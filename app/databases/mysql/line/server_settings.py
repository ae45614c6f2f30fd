"""The settings of a MySQL or MariaDB server that could lose a committed ticket or refuse the server's statements."""

from collections.abc import Iterator, Mapping

from app.databases.inspection import Flaw
from app.databases.mysql.line.bounds import LARGEST_STATEMENT

_ALIVE = "in its configuration, and with SET GLOBAL"
_RESTART = "in its configuration and restart it"
_NOT_FLUSHED = {"nosync": "writes nothing through to the disk", "littlesync": "skips writing through to the disk"}
"""Values of `innodb_flush_method`, in lower case, with which a commit may be in the system's memory alone."""


def flaws_of(variables: Mapping[str, str]) -> tuple[Flaw, ...]:
    """The flaws of a server with these variables, as `session_sql.SHOW_VARIABLES` gives them; one that is missing is
    taken for fit."""
    return (*_not_durable(variables), *_too_small(variables))


def _not_durable(variables: Mapping[str, str]) -> Iterator[Flaw]:
    flush = variables.get("innodb_flush_log_at_trx_commit", "1")
    if flush != "1":
        yield Flaw(
            f"innodb_flush_log_at_trx_commit={flush} loses tickets in a crash, expected 1", f"set it to 1 {_ALIVE}"
        )
    if variables.get("log_bin", "OFF") == "ON" and variables.get("sync_binlog") != "1":
        yield Flaw(
            f"sync_binlog={variables.get('sync_binlog')} with the binary log on loses tickets in a crash, expected 1",
            f"set it to 1 {_ALIVE}",
        )
    method = variables.get("innodb_flush_method", "")
    if method.lower() in _NOT_FLUSHED:
        yield Flaw(
            f"innodb_flush_method={method} {_NOT_FLUSHED[method.lower()]}: a power cut loses tickets that were issued",
            f"set innodb_flush_method = O_DIRECT {_RESTART}",
        )
    doublewrite = variables.get("innodb_doublewrite", "ON").upper()
    if doublewrite in ("OFF", "0"):
        yield Flaw(
            "innodb_doublewrite=OFF: a page that a power cut leaves half written cannot be repaired, and its table and "
            "the tickets in it are lost",
            f"set innodb_doublewrite = ON {_RESTART}",
        )
    elif doublewrite == "DETECT_ONLY":
        yield Flaw(
            "innodb_doublewrite=DETECT_ONLY: a page that a power cut leaves half written is found and cannot be "
            "repaired, and its table and the tickets in it are lost",
            "set innodb_doublewrite = ON in its configuration, and SET GLOBAL innodb_doublewrite = ON",
        )


def _too_small(variables: Mapping[str, str]) -> Iterator[Flaw]:
    packet = variables.get("max_allowed_packet", "")
    if packet.isdigit() and int(packet) < LARGEST_STATEMENT:
        yield Flaw(
            f"max_allowed_packet={packet} is too small: ticket servers send statements of up to {LARGEST_STATEMENT} "
            "bytes, and the server refuses the larger ones (high-water marks of many sequences above all)",
            f"set max_allowed_packet to {LARGEST_STATEMENT} or more {_ALIVE}",
        )
