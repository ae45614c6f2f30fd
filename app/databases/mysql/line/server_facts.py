"""The facts that a MySQL or MariaDB server reports about itself, and those that a ticket server refuses."""

import re
from dataclasses import dataclass
from typing import ClassVar

from app.common.errors import TicketDatabaseMisconfigured, TicketDatabaseSetWrong
from app.databases.inspection import Flaw

OLDEST_MYSQL = (8, 0)
OLDEST_MARIADB = (10, 6)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The facts that a database server reports about itself.

    `mariadb`: whether it is MariaDB, and not MySQL. `identity`: which server it is, and the second in which it started.
    `incarnation`: a digest of that and of the database's name. `increment`, `offset`: the server's own settings, not
    the session's. `autoinc_lock_mode`: its `innodb_autoinc_lock_mode`. `takes_steps`: whether a
    statement can have an increment and an offset of its own. `flaws`: what is wrong with its
    settings. `now`: its clock, in seconds since 1970. `tls`: whether this connection uses it.
    `folds_names`: whether its `lower_case_table_names` is not 0.
    `numbered_by_group`: its cluster, and no operator, sets increment and offset; None where that is not so.
    """

    setting_names: ClassVar[tuple[str, str]] = ("auto_increment_increment", "auto_increment_offset")

    mariadb: bool
    version: str
    identity: str
    incarnation: str
    increment: int
    offset: int
    autoinc_lock_mode: int
    takes_steps: bool
    flaws: tuple[Flaw, ...]
    now: float
    tls: bool
    folds_names: bool = False
    numbered_by_group: TicketDatabaseSetWrong | None = None


def numbered_by_group(variables: dict[str, str], increment: int, offset: int) -> TicketDatabaseSetWrong | None:
    """The setting that makes increment and offset the cluster's own, where one does.

    Under Galera's control they follow the number of nodes: with as many nodes as the increment they look right until
    a node comes or goes, and what a statement asks for is ignored even then.
    """
    right = f"auto_increment_increment = {increment} and auto_increment_offset = {offset} on every node of it"
    if variables.get("wsrep_on") == "ON" and variables.get("wsrep_auto_increment_control") == "ON":
        return TicketDatabaseSetWrong(
            "has wsrep_auto_increment_control=ON: its Galera cluster sets increment and offset by itself",
            f"set wsrep_auto_increment_control = OFF, {right}, and restart them one after the other",
        )
    by_group = variables.get("group_replication_auto_increment_increment")
    found = variables.get("auto_increment_increment")
    if by_group == found != str(increment) and variables.get("group_replication_group_name"):
        return TicketDatabaseSetWrong(
            f"has group_replication_auto_increment_increment={by_group}: Group Replication sets increment and offset "
            "by itself where they were 1 when it started",
            f"set group_replication_auto_increment_increment = {increment}, {right}, and restart them one after the "
            "other",
        )
    return None


def check_version(version: str, *, mariadb: bool) -> None:
    """Raise TicketDatabaseMisconfigured for a server older than those whose counters survive a crash."""
    # MariaDB may put "5.5.5-" before its version, for old replicas' sake
    found = re.search(r"(\d+)\.(\d+)\.\d+-mariadb" if mariadb else r"^(\d+)\.(\d+)", version.lower())
    number = (int(found[1]), int(found[2])) if found else (0, 0)
    oldest = OLDEST_MARIADB if mariadb else OLDEST_MYSQL
    if number < oldest:
        engine = "MariaDB" if mariadb else "MySQL"
        raise TicketDatabaseMisconfigured(
            f"is {engine} {number[0]}.{number[1]}, expected {oldest[0]}.{oldest[1]} or later: "
            "an older one forgets its counters in a crash"
        )
