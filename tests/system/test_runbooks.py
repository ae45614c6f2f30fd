"""The runbooks of docs/operations, each carried out as it stands there, under load."""

import os
import socket
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.deploy.front import HAProxy
from tests.documents import pages
from tests.harness.commands import forked_ticketd
from tests.harness.history import Answer
from tests.harness.load import Load, Result, Want
from tests.harness.mysqld import TicketMySQL
from tests.harness.pair import MySQLPair
from tests.harness.processes import free_port, wait_until
from tests.harness.schema import PASSWORD, USER
from tests.harness.ticketd import PATIENT, REPOSITORY, TicketServer

PAUSE = 0.05
"""Seconds that a client waits between requests: four of them leave the machine to what is under way."""


@contextmanager
def servers_on(
    databases: str, number: int = 2, settings: Mapping[str, object] | None = None
) -> Iterator[list[TicketServer]]:
    with ExitStack() as stack:
        settings = {**PATIENT, **(settings or {})}
        servers = [stack.enter_context(TicketServer(databases, settings=settings)) for _ in range(number)]
        for server in servers:
            server.wait_health("pass")
        yield servers


def all_pass(servers: list[TicketServer]) -> None:
    for server in servers:
        server.wait_health("pass")


def residues(result: Result, since: int) -> set[int]:
    """Which databases the answers from number `since` on came from."""
    return {answer.ids[0] % 2 for answer in result.answers[since:] if answer.ids}


def until_both_draw(load: Load) -> None:
    seen = len(load.result.answers)
    wait_until(lambda: residues(load.result, seen) == {0, 1}, 15, "tickets from both databases")


def ended(load: Load) -> Result:
    """End the load, after enough answers however quickly all was done."""
    wait_until(lambda: len(load.result.answers) > 100, 30, "a hundred answers")
    return load.stop()


def assert_nothing_was_lost(result: Result) -> None:
    assert len(result.answers) > 100
    assert result.failures() == []
    assert result.violations() == []


def test_a_dead_ticket_database_is_replaced_by_an_empty_one(own_pair: MySQLPair) -> None:
    with servers_on(own_pair.urls) as servers, Load([s.address for s in servers], clients=4, pause=PAUSE) as load:
        until_both_draw(load)
        own_pair.odd.kill()
        for server in servers:
            server.wait_health("warn")
        own_pair.odd.wipe()
        own_pair.odd.start()
        all_pass(servers)
        until_both_draw(load)
        assert_nothing_was_lost(ended(load))


def test_a_ticket_database_is_backed_up_and_restored(own_pair: MySQLPair) -> None:
    with servers_on(own_pair.urls) as servers, Load([s.address for s in servers], clients=4, pause=PAUSE) as load:
        until_both_draw(load)
        own_pair.even.stop()
        backup = own_pair.even.save_data_directory()
        own_pair.even.start()
        all_pass(servers)
        until_both_draw(load)
        own_pair.even.stop()
        own_pair.even.restore_data_directory(backup)
        own_pair.even.start()
        all_pass(servers)
        until_both_draw(load)
        assert_nothing_was_lost(ended(load))


def test_a_ticket_server_is_added_and_another_one_removed(own_pair: MySQLPair) -> None:
    with (
        servers_on(own_pair.urls) as servers,
        TicketServer(own_pair.urls, settings={**PATIENT, "TICKETS_DRAIN_SECONDS": 3}) as leaving,
    ):
        new = servers[1]
        assert new.terminate() == 0  # so that its place at the load balancer is empty
        with HAProxy([leaving.name, servers[0].name, new.name]) as haproxy:
            haproxy.wait_states("UP", "UP", "DOWN")
            with Load([haproxy.address], clients=8, pause=PAUSE) as load:
                until_both_draw(load)
                new.start()
                new.wait_ready()
                new.wait_health("pass")
                haproxy.wait_states("UP", "UP", "UP")
                until_both_draw(load)
                leaving.signal_terminate()
                haproxy.wait_states("DOWN", "UP", "UP")
                assert leaving.running, "it ended before the load balancer had noticed"
                assert leaving.wait() == 0
                until_both_draw(load)
                result = ended(load)
    assert result.failures() == []
    assert not result.duplicates()


def hold_connections(server: TicketServer, number: int, until: ExitStack) -> None:
    """Clients that have asked once, and keep their connections."""
    for _ in range(number):
        client = until.enter_context(socket.create_connection(server.address, timeout=20))
        client.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 200")


def test_a_server_whose_connections_are_all_taken_is_given_more(own_pair: MySQLPair) -> None:
    with servers_on(own_pair.urls, settings={"TICKETS_MAX_CONNECTIONS": 12}) as servers, ExitStack() as idle:
        full = servers[0]
        hold_connections(full, 12, idle)
        (warning,) = full.wait_health("warn")["warnings"]
        assert "TICKETS_MAX_CONNECTIONS" in warning["reason"]
        with Load([server.address for server in servers], clients=8, pause=PAUSE) as load:
            wait_until(load.result.failures, 15, "a client to be refused")
        assert {answer.status for answer in load.result.failures()} == {503}
        load.result.check()
        full.environment["TICKETS_MAX_CONNECTIONS"] = "100"
        full.restart()
        hold_connections(full, 12, idle)
        with Load([server.address for server in servers], clients=8, pause=PAUSE) as load:
            until_both_draw(load)
            assert_nothing_was_lost(ended(load))
        assert full.wait_health("pass")["warnings"] == []


def test_a_databases_mysql_is_upgraded_and_the_upgrade_taken_back(own_pair: MySQLPair) -> None:
    """The machine has one version: MySQL is made to convert its files as at the first start of a newer one."""
    convert = ["--upgrade=FORCE"] if own_pair.even.engine.kind == "mysql" else []
    with servers_on(own_pair.urls) as servers, Load([s.address for s in servers], clients=4, pause=PAUSE) as load:
        backups = []
        for database in own_pair:
            database.stop()
            backups.append(database.save_data_directory())
            database.start(flags=convert)
            all_pass(servers)
            until_both_draw(load)
        own_pair.even.stop()
        own_pair.even.restore_data_directory(backups[1])
        own_pair.even.start(flags=[])
        all_pass(servers)
        until_both_draw(load)
        assert_nothing_was_lost(ended(load))


def run_sql(database: TicketMySQL, block: str, password: str) -> None:
    """The statements that the page has an administrator type, with this password."""
    for statement in filter(str.strip, block.replace("'...'", f"'{password}'").split(";")):
        database.execute(statement)


def test_the_account_of_the_documents_is_all_that_a_ticket_server_needs(own_pair: MySQLPair) -> None:
    for database in own_pair:
        database.execute(f"DROP USER '{USER}'@'127.0.0.1'")
        run_sql(database, pages.block("docs/operations/databases.md", "CREATE USER 'tickets'@'%'"), "a-password")
    with servers_on(own_pair.urls.replace(f"{USER}:{PASSWORD}@", "tickets:a-password@"), 1) as (server,):
        assert server.put("/sequence/albums").status == 201
        assert {server.ticket("albums") % 2 for _ in range(4)} == {0, 1}


def test_a_password_is_changed_without_a_failed_request(own_pair: MySQLPair) -> None:
    old, new = own_pair.urls, own_pair.urls.replace(f"{USER}:{PASSWORD}@", "tickets_2:another-for-tests@")
    assert new != old
    with servers_on(old) as servers:
        answers: list[Answer] = []
        for database in own_pair:
            run_sql(
                database,
                pages.block("docs/operations/change-the-database-password.md", "CREATE USER 'tickets_2'@'%'"),
                "another-for-tests",
            )
        for server in servers:  # the load balancer has taken it out; the others serve
            others = [other.address for other in servers if other is not server]
            with Load(others, clients=4, pause=PAUSE / 5) as load:
                server.environment["TICKETS_DATABASES"] = new
                server.restart()
                server.wait_health("pass")
                answers += ended(load).answers
        for database in own_pair:
            database.execute(f"DROP USER '{USER}'@'127.0.0.1'")
        with Load([server.address for server in servers], clients=4, pause=PAUSE) as load:
            until_both_draw(load)
            answers += ended(load).answers
        for database in own_pair:
            assert database.execute("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = %s", (USER,)) == [
                (0,)
            ]
    assert_nothing_was_lost(Result(answers))


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


def bearer(token: str) -> str:
    """The header line of a request with this token."""
    return f"Authorization: Bearer {token}\r\n"


def test_tokens_are_rotated_without_a_restart_or_a_failed_request(own_pair: MySQLPair, tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("the-old-token-of-the-clients", encoding="utf-8")  # and no line end after it
    with servers_on(own_pair.urls, settings={"TICKETS_TOKENS_FILE": path}) as servers:
        replacing = {"/path/to/tokens": str(path)}
        names = {f"127.0.0.1:800{number}": server.name for number, server in enumerate(servers, 1)}
        addresses = [server.address for server in servers]
        pids = [server.pid for server in servers]
        with Load(addresses, clients=4, pause=PAUSE, headers=bearer("the-old-token-of-the-clients")) as clients:
            until_both_draw(clients)
            pages.run(
                pages.block("docs/operations/rotate-tokens.md", "tokens=/path/to/tokens      # the file"),
                tmp_path,
                replacing=replacing | names,
            )
            old, new = path.read_text(encoding="utf-8").split()
            assert old == "the-old-token-of-the-clients"
            with Load(addresses, clients=4, pause=PAUSE, headers=bearer(new)) as moved:
                until_both_draw(moved)
                until_both_draw(clients)
                result = clients.stop()
                pages.run(
                    pages.block("docs/operations/rotate-tokens.md", "tokens=/path/to/tokens\nnew="),
                    tmp_path,
                    replacing=replacing,
                )
                refused = {"Authorization": f"Bearer {old}"}
                wait_until(
                    lambda: all(server.get("/ticket/photos", headers=refused).status == 401 for server in servers),
                    20,
                    "the old token to be refused",
                )
                until_both_draw(moved)
                result.answers += moved.stop().answers
        assert [server.pid for server in servers] == pids
    assert_nothing_was_lost(result)


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


def test_a_release_is_rolled_back(own_pair: MySQLPair) -> None:
    """There is one release here: what a newer one leaves is tables of a newer version, and a setting of its own."""
    later = {**PATIENT, "TICKETS_DRAIN_SECONDS": 3, "TICKETS_OF_A_LATER_RELEASE": "1"}
    with TicketServer(own_pair.urls, settings=later) as one, TicketServer(own_pair.urls, settings=later) as other:
        servers = [one, other]
        for server in servers:
            server.wait_ready()
        for database in own_pair:
            database.execute("UPDATE _layout SET version = version + 1")
        with (
            HAProxy([one.name, other.name, f"127.0.0.1:{free_port()}"]) as haproxy,
            Load([haproxy.address], clients=8, pause=PAUSE) as load,
        ):
            haproxy.wait_states("UP", "UP", "DOWN")
            until_both_draw(load)
            for server, states in ((one, ("DOWN", "UP", "DOWN")), (other, ("UP", "DOWN", "DOWN"))):
                server.signal_terminate()
                haproxy.wait_states(*states)
                assert server.wait() == 0
                server.start()
                server.wait_ready()
                assert "newer than this server's" in str(server.wait_health("warn")["warnings"])
                assert "TICKETS_OF_A_LATER_RELEASE" in server.log_text()
                haproxy.wait_states("UP", "UP", "DOWN")
                until_both_draw(load)
            result = ended(load)
    assert result.failures() == []
    assert not result.duplicates()


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
