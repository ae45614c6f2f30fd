"""The runbooks on sequences, each carried out as it stands there, under load."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.documents import pages
from tests.harness.commands import forked_ticketd
from tests.harness.load import Load, Want
from tests.harness.mysqld import TicketMySQL
from tests.harness.pair import MySQLPair
from tests.harness.processes import wait_until
from tests.harness.schema import PASSWORD, USER
from tests.harness.ticketd import PATIENT, REPOSITORY, TicketServer
from tests.system.runbooks import PAUSE, all_pass, assert_nothing_was_lost, ended, servers_on, until_both_draw


def test_an_old_auto_increment_table_becomes_a_sequence(own_pair: MySQLPair, tmp_path: Path) -> None:
    own_pair.odd.execute("CREATE DATABASE app")
    own_pair.odd.execute("CREATE TABLE app.photos (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, title TEXT)")
    own_pair.odd.execute("INSERT INTO app.photos (id, title) VALUES (123456, 'the last one')")
    own_pair.odd.execute(f"GRANT SELECT ON app.photos TO '{USER}'@'127.0.0.1'")
    (tmp_path / "ticketd").write_text(f'#!/bin/sh\nexec {sys.executable} -m app "$@"\n', encoding="utf-8")
    (tmp_path / "ticketd").chmod(0o755)
    (tmp_path / "password").write_text(PASSWORD, encoding="utf-8")
    with servers_on(own_pair.urls) as servers:
        pages.run(
            pages.block("docs/moving-over.md", "curl --fail -X PUT"),
            REPOSITORY,
            replacing={
                "http://127.0.0.1:8000": servers[0].url,
                "app@db.example": f"{USER}@127.0.0.1:{own_pair.odd.port}",
                "FILE": str(tmp_path / "password"),
            },
            environment={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        )
        tickets = [server.ticket("photos") for server in servers for _ in range(4)]
    assert len(set(tickets)) == len(tickets)
    assert min(tickets) > 123456
    back = pages.block("docs/moving-over.md", "ALTER TABLE photos AUTO_INCREMENT")
    own_pair.odd.execute(back.strip().removesuffix(";").replace("photos", "app.photos"))
    own_pair.odd.execute("INSERT INTO app.photos (title) VALUES ('without a ticket again')")
    ((newest,),) = own_pair.odd.execute("SELECT MAX(id) FROM app.photos")
    assert int(str(newest)) > max(tickets)


OLDER_THAN_A_SECOND = "SELECT CREATE_TIME < NOW() FROM information_schema.TABLES WHERE TABLE_NAME = %s"
DIFFER = "its columns differ between the databases"


def news(server: TicketServer) -> set[str]:
    """What `/healthz` warns of, but for how much of a sequence is used up."""
    reasons = {each["reason"] for each in server.get("/healthz").json()["warnings"]}
    return {reason for reason in reasons if not reason.endswith("of its ids are used up")}


def test_a_32_bit_sequence_becomes_one_of_64_bits_before_its_end(own_pair: MySQLPair) -> None:
    """Under load, far enough from the end for any machine; a bump brings it there, so that it is passed here too."""
    end = 2**32 - 1
    with servers_on(own_pair.urls) as servers:
        assert servers[0].put("/sequence/small", json={"bits": 32, "start": end - 1_000_000}).status == 201
        said = forked_ticketd("doctor", settings={"TICKETS_DATABASES": own_pair.urls}).output
        widen = (
            pages.block("docs/operations/sequence-at-its-end.md", "ALTER TABLE Tickets32")
            .strip()
            .removesuffix(";")
            .replace("Tickets32", "small")
        )
        assert widen in said.replace("`", "")
        mix = (Want("small"), Want("small", "block", 5), Want("small", "count", 3))
        with Load([server.address for server in servers], clients=4, mix=mix, pause=0.05) as load:
            until_both_draw(load)
            # a table is known to be another one by when it was made, in seconds: nobody alters one in its first second
            wait_until(lambda: own_pair.odd.execute(OLDER_THAN_A_SECOND, ["small"]) == [(1,)], 10, "another second")
            own_pair.odd.execute(widen)
            wait_until(
                lambda: all(news(server) == {DIFFER} for server in servers), 30, "nothing new but different columns"
            )
            until_both_draw(load)
            assert own_pair.even.largest_id("small") < end
            own_pair.even.execute(widen)
            all_pass(servers)
            bumped = servers[0].post("/sequence/small/bump", json={"above": end - 200})
            assert bumped.status == 200, bumped.text
            wait_until(lambda: all(each > end for each in own_pair.all_largest_ids("small")), 60, "both past the end")
            until_both_draw(load)
            result = ended(load)
        for server in servers:
            found = server.get("/sequence/small").json()
            assert (found["bits"], found["exhausted"]) == (64, False)
    assert_nothing_was_lost(result)


def test_a_32_bit_sequence_at_its_end_goes_on_with_64_bits(own_pair: MySQLPair) -> None:
    end = 2**32 - 1
    with servers_on(own_pair.urls) as servers:
        assert servers[0].put("/sequence/small", json={"bits": 32, "start": end - 20}).status == 201
        before = []
        while (reply := servers[0].get("/ticket/small")).status == 200:
            before.append(reply.json()["id"])
        assert reply.status == servers[1].get("/ticket/small").status == 410
        for database in own_pair:
            database.execute(
                pages.block("docs/operations/sequence-at-its-end.md", "ALTER TABLE Tickets32").replace(
                    "Tickets32", "small"
                )
            )
        all_pass(servers)
        after = [server.ticket("small") for server in servers for _ in range(4)]
    assert max(before) < end < min(after)
    assert {ticket % 2 for ticket in after} == {0, 1}
    assert len(set(after)) == len(after)


def test_a_new_sequence_takes_the_place_of_an_old_one(own_pair: MySQLPair) -> None:
    with servers_on(own_pair.urls) as servers:
        addresses = [server.address for server in servers]
        with Load(addresses, clients=4, pause=PAUSE) as old:
            until_both_draw(old)
            pages.run(
                pages.block(
                    "docs/operations/rename-a-sequence.md", "curl --fail http://127.0.0.1:8000/sequence/photos"
                ),
                REPOSITORY,
                replacing={"http://127.0.0.1:8000": servers[0].url},
            )
            with Load(addresses, clients=4, pause=PAUSE, mix=["pictures"]) as new:
                until_both_draw(new)
                new.run_until_tickets(200)
                result = old.stop()
                result.answers += new.stop().answers
    assert_nothing_was_lost(result)
    taken = {name: {i for a in result.answers if a.sequence == name for i in a.ids} for name in ("photos", "pictures")}
    assert max(taken["photos"]) < 100_000_000 < min(taken["pictures"])


def has_table(database: TicketMySQL, name: str) -> bool:
    where = "TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s"
    return database.execute(f"SELECT COUNT(*) FROM information_schema.TABLES WHERE {where}", (name,)) == [(1,)]


def test_a_renamed_table_is_another_sequence_and_the_old_one_comes_back(own_pair: MySQLPair) -> None:
    """Why the page says never to rename a table: from then on both sequences give the same ids."""
    with servers_on(own_pair.urls) as servers:
        before = {servers[0].ticket("photos") for _ in range(20)}
        own_pair.odd.execute("RENAME TABLE photos TO pictures")
        names = ("photos", "pictures")
        wait_until(lambda: all(has_table(each, name) for each in own_pair for name in names), 30, "both to be made")
        all_pass(servers)
        old = {servers[0].ticket("photos") for _ in range(20)}
        renamed = {servers[0].ticket("pictures") for _ in range(20)}
    assert not before & old
    assert not before & renamed
    assert old & renamed


def test_a_sequence_is_given_up_and_made_again_above_what_it_had_issued(own_pair: MySQLPair) -> None:
    drop = pages.block("docs/operations/give-up-a-sequence.md", "DROP TABLE").strip().removesuffix(";")
    with servers_on(own_pair.urls) as servers:
        before = [server.ticket("photos") for server in servers for _ in range(20)]
        with Load([server.address for server in servers], clients=4, pause=PAUSE, mix=["accounts"]) as load:
            own_pair.odd.execute(drop)
            wait_until(lambda: has_table(own_pair.odd, "photos"), 30, "it to be made again from the other database")
            before += [server.ticket("photos") for server in servers for _ in range(20)]
            assert len(set(before)) == len(before)

            def is_gone() -> bool:
                with ThreadPoolExecutor() as both:
                    list(both.map(lambda database: database.execute(drop), own_pair))
                return [server.get("/sequence/photos").status for server in servers] == [404, 404]

            wait_until(is_gone, 30, "it to be gone", 3)
            assert not any(has_table(database, "photos") for database in own_pair)
            with TicketServer(own_pair.urls, settings=PATIENT) as newcomer:  # it remembers nothing of the table
                newcomer.wait_health("pass")
                assert newcomer.put("/sequence/photos").status == 201
                again = [server.ticket("photos") for server in (newcomer, *servers) for _ in range(20)]
            until_both_draw(load)
            assert_nothing_was_lost(ended(load))
    assert not set(before) & set(again)
    for residue in (0, 1):  # each database goes on above what it had issued itself
        issued = [ticket for ticket in before if ticket % 2 == residue]
        assert all(ticket > max(issued) for ticket in again if ticket % 2 == residue)
