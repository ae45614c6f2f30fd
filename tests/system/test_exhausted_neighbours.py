"""A sequence at its end, and what a database that was away owes its neighbours."""

from tests.harness.pair import Schema
from tests.harness.processes import wait_until
from tests.harness.ticketd import PATIENT, TicketServer

LIMIT = 2**63 - 1
NEIGHBOURS = ("photos", "accounts", "groups")


def test_a_64_bit_sequence_at_its_end_leaves_the_marks_of_its_neighbours_alone(fragile: Schema) -> None:
    """Its counter stands above the largest ticket, which is the largest number that a mark can be."""
    odd = fragile.pair.odd
    for index in (0, 1):
        fragile.execute(
            index,
            "CREATE TABLE an_end (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, stub CHAR(1) CHARACTER SET ascii "
            "COLLATE ascii_bin NOT NULL DEFAULT '', PRIMARY KEY (stub), KEY id (id)) "
            f"ENGINE=InnoDB AUTO_INCREMENT={LIMIT - 9}",
        )
    with TicketServer(fragile.urls, settings=PATIENT | {"TICKETS_PROBE_INTERVAL": 0.2}) as server:
        server.wait_health("warn")
        assert server.put("/sequence/flakes", json={"kind": "snowflake"}).status == 201
        while server.get("/ticket/an_end").status == 200:
            pass
        assert server.get("/ticket/an_end").status == 410
        for index in (0, 1):
            for name in NEIGHBOURS:  # as another program draws: no mark says so
                fragile.execute(index, f"REPLACE INTO `{name}` (id, stub) VALUES ({1_000 + index}, 'z')")
        odd.kill()
        server.wait_database(odd.name, "down")
        odd.restart()
        server.wait_database(odd.name, "up")

        def unprotected() -> list[str]:
            warnings = server.get("/healthz").json()["warnings"]
            return [each["reason"] for each in warnings if each["sequence"] is None]

        wait_until(lambda: not unprotected(), 20, "the databases to keep each other's marks")
        for index, offset in ((0, 2), (1, 1)):
            rows = fragile.execute(index, f"SELECT sequence, mark FROM _high_water WHERE offset_of = {offset}")
            marks = {str(name): int(str(mark)) for name, mark in rows}
            for name in NEIGHBOURS:
                assert marks[name] >= 999, (index, marks)  # MySQL tells one less until the table is opened
            assert marks["an_end"] <= LIMIT
        assert server.get("/ticket/flakes").status == 200
        assert server.get("/ticket/photos").status == 200
        assert server.get("/ticket/an_end").status == 410
        assert "holds no further id in its column" not in server.log_text()
