"""Rings that change under the tests: what was issued whatever the increment was then, and databases set anew."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.harness.commands import Ran, forked_ticketd
from tests.harness.history import Answer
from tests.harness.pair import MySQLPair
from tests.harness.ticketd import PATIENT, TicketServer

WATCHFUL = {**PATIENT, "TICKETS_PROBE_INTERVAL": 0.2}


class Issued:
    """Every ticket that was handed out, a byte for each id: duplicates show whatever the increment was.

    `add` is told of lists and blocks; `record` is what `Load` wants. `residues`: of what has come since `mark_time`.
    """

    def __init__(self) -> None:
        self.twice: list[str] = []
        self.tickets = 0
        self.failed: list[Answer] = []
        self._seen: dict[str, bytearray] = {}
        self._recent: dict[str, list[Sequence[int]]] = {}

    def add(self, sequence: str, ids: Sequence[int], server: str = "") -> None:
        """These were handed out."""
        if not ids:
            return
        self.tickets += len(ids)
        self._recent.setdefault(sequence, []).append(ids)
        seen = self._seen.setdefault(sequence, bytearray())
        if len(seen) <= max(ids[0], ids[-1]):
            seen.extend(bytes(max(ids[0], ids[-1]) + 100_000 - len(seen)))
        step = ids.step if isinstance(ids, range) else 0
        runs = [slice(ids[0], ids[-1] + 1, step)] if step else [slice(each, each + 1) for each in ids]
        for run in runs:
            again = sum(seen[run])
            if again:
                self.twice.append(f"{again} of {sequence} from {run.start} on, from {server}")
            seen[run] = b"\1" * len(range(*run.indices(len(seen))))

    def record(self, answer: Answer) -> None:
        """One answer of a load."""
        if answer.status == 200:
            self.add(answer.sequence, answer.ids, answer.server)
        else:
            self.failed.append(answer)

    def take(self, server: TicketServer, times: int = 1, sequence: str = "photos") -> list[int]:
        """Single tickets, each of them a 200."""
        ids = [server.ticket(sequence) for _ in range(times)]
        for each in ids:
            self.add(sequence, [each], server.name)
        return ids

    def take_if_any(self, server: TicketServer, times: int = 1, sequence: str = "photos") -> list[int]:
        """Single tickets, as many as there are; anything but 200 and 503 fails."""
        ids = []
        for _ in range(times):
            reply = server.get(f"/ticket/{sequence}")
            assert reply.status in (200, 503), reply
            if reply.status == 200:
                ids.append(int(reply.json()["id"]))
                self.add(sequence, ids[-1:], server.name)
        return ids

    def take_list(self, server: TicketServer, count: int, sequence: str = "photos") -> list[int]:
        """A list of so many."""
        reply = server.get(f"/ticket/{sequence}?count={count}")
        assert reply.status == 200, reply
        ids = list(reply.json()["ids"])
        self.add(sequence, ids, server.name)
        return ids

    def take_block(self, server: TicketServer, size: int = 10_000, sequence: str = "photos") -> range:
        """A block of so many."""
        reply = server.get(f"/block/{sequence}?size={size}")
        assert reply.status == 200, reply
        block = reply.json()
        ids = range(block["first"], block["first"] + block["step"] * size, block["step"])
        self.add(sequence, ids, server.name)
        return ids

    def from_now_on(self) -> None:
        """`residues` and `ids` are of what comes after this."""
        self._recent.clear()

    def ids(self, sequence: str = "photos") -> list[int]:
        """What has come since `from_now_on`, blocks by their first and last."""
        return [
            each
            for ids in self._recent.get(sequence, [])
            for each in ((ids[0], ids[-1]) if isinstance(ids, range) else ids)
        ]

    def residues(self, increment: int, sequence: str = "photos") -> set[int]:
        """The residues of what has come since `from_now_on`."""
        return {each % increment for each in self.ids(sequence)}

    def highest(self, sequence: str = "photos") -> int:
        """The largest id handed out at all."""
        return max(self._seen.get(sequence, b"").rfind(1), 0)

    def check(self) -> None:
        """Fail where anything came twice."""
        assert not self.twice, self.twice[:10]


class Rings:
    """Several databases that run, and one schema on each of them for this test alone. Databases go by their offsets."""

    def __init__(self, pair: MySQLPair, schema: str) -> None:
        self.pair = pair
        self.schema = schema

    def urls(self, *offsets: int) -> str:
        """The value of TICKETS_DATABASES for these, in this order."""
        return " ".join(self.pair[offset - 1].url_of(self.schema) for offset in offsets)

    def name(self, offset: int) -> str:
        return self.pair[offset - 1].name

    def execute(self, offset: int, sql: str) -> list[tuple[Any, ...]]:
        """Run one statement as root in the schema of this database."""
        return self.pair[offset - 1].execute(sql, database=self.schema)

    def configure(self, increment: int, *offsets: int) -> None:
        """Set the increment of these, and their own offsets, for all connections from now on."""
        for offset in offsets:
            self.set_globals(offset, increment, offset)

    def set_globals(self, database: int, increment: int, offset: int) -> None:
        """Set increment and offset of one database."""
        self.execute(database, f"SET GLOBAL auto_increment_increment = {increment}")
        self.execute(database, f"SET GLOBAL auto_increment_offset = {offset}")

    def drift(self, offset: int, above: int, sequence: str = "photos") -> None:
        """Move one side far ahead, as years of failovers do."""
        self.execute(offset, f"REPLACE INTO `{sequence}` (id, stub) VALUES ({above}, '!')")

    def record(self, offset: int) -> tuple[Any, ...] | None:
        """Number, increment, offsets, own offset and state that this database records."""
        sql = "SELECT number, increment_of, offsets, own_offset, state FROM _ring"
        rows = self.execute(offset, sql)
        return rows[0] if rows else None

    def position(self, offset: int, sequence: str = "photos") -> int:
        return self.pair[offset - 1].largest_id(sequence, self.schema)

    def tables(self, offset: int) -> list[str]:
        """The tables of this database, the ticket server's own among them."""
        return [str(name) for (name,) in self.execute(offset, "SHOW TABLES")]

    def dump(self, offset: int) -> str:
        """Copy every table of this database aside, counters and all; returns the schema that holds the copies."""
        aside = f"{self.schema}_copy"
        self.execute(offset, f"CREATE DATABASE {aside}")
        self._copy(offset, self.schema, aside)
        return aside

    def load(self, offset: int, aside: str) -> None:
        """Put the copies back in the place of what is there."""
        for name in self.tables(offset):
            self.execute(offset, f"DROP TABLE `{name}`")
        self._copy(offset, aside, self.schema)

    def _copy(self, offset: int, source: str, target: str) -> None:
        for (name,) in self.execute(offset, f"SHOW TABLES FROM {source}"):
            self.execute(offset, f"CREATE TABLE {target}.`{name}` LIKE {source}.`{name}`")
            self.execute(offset, f"INSERT INTO {target}.`{name}` SELECT * FROM {source}.`{name}`")


def grow(urls: str, increment: int, settings: Mapping[str, object] | None = None) -> Ran:
    """`ticketd grow` with this list."""
    chosen = {**PATIENT, "TICKETS_DATABASES": urls, **(settings or {})}
    return forked_ticketd("grow", "--increment", increment, settings=chosen)


def last_error(server: TicketServer, name: str) -> str:
    """The last error of this database in /healthz."""
    return next(str(each["last_error"]) for each in server.databases() if each["name"] == name)


def refused(server: TicketServer, *reasons: str) -> None:
    """Check that this server draws nothing, and names all these reasons for every database."""
    report = server.wait_health("fail")
    assert server.get("/ticket/photos").status == 503
    assert server.get("/block/photos?size=10").status == 503
    assert server.get("/readyz").status == 503
    for each in report["databases"]:
        assert each["status"] == "quarantined", report
        assert all(reason in each["last_error"] for reason in reasons), report
