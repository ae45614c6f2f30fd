"""A bad day from end to end: whatever goes wrong, no client notices, and a person hears of what they should.

Real ticket databases, ticket servers, HAProxy with TLS and Prometheus, with the configuration that is deployed. Tokens
are required everywhere, and change in the middle.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deploy.front import (
    CLIENTS,
    SERVERS,
    ProcessFront,
    kill_a_server,
    nobody_notices,
    restart_servers,
    steady,
    wait_until_all_pass,
)
from tests.deploy.prometheus import Prometheus
from tests.documents import pages
from tests.harness.load import Load
from tests.harness.mysqld import TicketMySQL
from tests.harness.pair import MySQLPair
from tests.harness.processes import wait_until

MINUTE = 8.0
"""Seconds that stand for a minute of a rule's `for:`. A server or a database that only restarts is back before."""
DOWN = "TicketDatabaseDown"
FAULTS: dict[str, tuple[Callable[[TicketMySQL], None], Callable[[TicketMySQL], None]]] = {
    "killed": (TicketMySQL.kill, TicketMySQL.start),
    "frozen": (TicketMySQL.freeze, TicketMySQL.thaw),
}


class BadDay:
    """What happens, while the clients draw."""

    def __init__(self, front: ProcessFront, pair: MySQLPair, prometheus: Prometheus, load: Load) -> None:
        self._front = front
        self._pair = pair
        self._prometheus = prometheus
        self._load = load
        self.expected: set[tuple[str, str]] = set()
        """The alerts that a person should have had so far, and of which database."""

    def fired(self) -> set[tuple[str, str]]:
        """The alerts that a person had so far, and of which database."""
        return {(each["alertname"], each.get("database", "")) for each in self._prometheus.all_that_fired()}

    def away(self, number: int, how: str, seconds: float) -> None:
        """A database is killed or frozen, and back before anybody is told."""
        strike, mend = FAULTS[how]
        strike(self._pair[number])
        self._load.run_for(seconds)
        mend(self._pair[number])
        wait_until_all_pass(self._front)

    def away_for_long(self, number: int, how: str) -> None:
        """A database is killed or frozen until a person is told, and hears that it is back."""
        strike, mend = FAULTS[how]
        strike(self._pair[number])
        self._prometheus.wait_firing(DOWN)
        mend(self._pair[number])
        wait_until_all_pass(self._front)
        self._prometheus.wait_firing()
        self.expected.add((DOWN, self._pair[number].name))

    def rotate_tokens(self) -> None:
        """As the runbook says, those of the clients and of Prometheus, and those for changes."""
        front = self._front
        files = (front.tokens, front.admin_tokens)
        old, old_admin = (path.read_text(encoding="utf-8").strip() for path in files)
        assert front.make_sequence("before", old_admin) == 201
        names = " ".join(server.name for server in front.servers)
        for path in files:
            replacing = {"/path/to/tokens": str(path), "127.0.0.1:8001 127.0.0.1:8002": names}
            pages.run(
                pages.block("docs/operations/rotate-tokens.md", "tokens=/path/to/tokens      # the file"),
                path.parent,
                replacing=replacing,
            )
        new, new_admin = (path.read_text(encoding="utf-8").split()[-1] for path in files)
        assert {new, new_admin}.isdisjoint({old, old_admin})
        for clients in (range(CLIENTS // 2), range(CLIENTS // 2, CLIENTS)):
            self._load.change_headers(bearer(new), clients)
            self._load.run_until_tickets(3 * CLIENTS)
        self._prometheus.change_token(new)
        for path in files:
            replacing = {"/path/to/tokens": str(path)}
            pages.run(
                pages.block("docs/operations/rotate-tokens.md", "tokens=/path/to/tokens\nnew="),
                path.parent,
                replacing=replacing,
            )
        wait_until(lambda: not any(map(self._is_known, (old, old_admin))), 20, "the old tokens to be refused", 0.2)
        assert front.make_sequence("after", old_admin) == 401
        assert front.make_sequence("after", new_admin) == 201

    def _is_known(self, token: str) -> bool:
        """Does any server know this token?"""
        headers = {"Authorization": f"Bearer {token}"}
        return any(server.get("/sequence?limit=1", headers=headers).status == 200 for server in self._front.servers)


def bearer(token: str) -> str:
    """The header line of a request with this token."""
    return f"Authorization: Bearer {token}\r\n"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)], ids=["short", "whole"])
def test_nobody_notices_a_bad_day(whole: bool, own_pair: MySQLPair, certificates: Path, tmp_path: Path) -> None:
    with ProcessFront(own_pair, certificates, tmp_path) as front:
        token = front.tokens.read_text(encoding="utf-8").strip()
        with (
            Prometheus(front.targets, token, MINUTE) as prometheus,
            nobody_notices(steady(front, headers=bearer(token), tls=front.trust)) as load,
        ):
            day = BadDay(front, own_pair, prometheus, load)
            restart_servers(front, SERVERS if whole else [0])
            kill_a_server(front, load, 1)
            if whole:
                for number in (0, 1):
                    day.away(number, "killed", 1)
                    day.away(number, "frozen", 2)
            day.rotate_tokens()
            assert day.fired() == set(), "nobody should have been told of any of this"
            day.away_for_long(0, "killed")
            if whole:
                day.away_for_long(1, "frozen")
            prometheus.wait_series("count(up == 1) == 7")
            assert day.fired() == day.expected
