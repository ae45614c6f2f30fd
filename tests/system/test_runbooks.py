"""The runbooks of deploy/README.md, each carried out as it stands there, under load."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.deploy import readme
from tests.deploy.front import HAProxy
from tests.harness.history import Answer
from tests.harness.load import Load, Result
from tests.harness.mysqld import TicketMySQL
from tests.harness.pair import MySQLPair
from tests.harness.processes import wait_until
from tests.harness.schema import PASSWORD, USER
from tests.harness.ticketd import PATIENT, REPOSITORY, TicketServer


@contextmanager
def servers_on(databases: str, number: int = 2) -> Iterator[list[TicketServer]]:
    with ExitStack() as stack:
        servers = [stack.enter_context(TicketServer(databases, settings=PATIENT)) for _ in range(number)]
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


def assert_nothing_was_lost(result: Result) -> None:
    assert len(result.answers) > 100
    assert result.failures() == []
    assert result.violations() == []


def test_a_dead_ticket_database_is_replaced_by_an_empty_one(own_pair: MySQLPair) -> None:
    with servers_on(own_pair.urls) as servers, Load([s.address for s in servers], clients=4) as load:
        until_both_draw(load)
        own_pair.odd.kill()
        for server in servers:
            server.wait_health("warn")
        own_pair.odd.wipe()
        own_pair.odd.start()
        all_pass(servers)
        until_both_draw(load)
        assert_nothing_was_lost(load.stop())


def test_a_ticket_database_is_backed_up_and_restored(own_pair: MySQLPair) -> None:
    with servers_on(own_pair.urls) as servers, Load([s.address for s in servers], clients=4) as load:
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
        assert_nothing_was_lost(load.stop())


def test_a_ticket_server_is_added_and_another_one_removed(own_pair: MySQLPair) -> None:
    with (
        servers_on(own_pair.urls) as servers,
        TicketServer(own_pair.urls, settings={**PATIENT, "TICKETS_DRAIN_SECONDS": 3}) as leaving,
    ):
        new = servers[1]
        assert new.terminate() == 0  # so that its place at the load balancer is empty
        with HAProxy([leaving.name, servers[0].name, new.name]) as haproxy:
            haproxy.wait_states("UP", "UP", "DOWN")
            with Load([haproxy.address], clients=8, pause=0.02) as load:
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
                result = load.stop()
    assert result.failures() == []
    assert not result.duplicates()


def test_a_databases_mysql_is_upgraded_and_the_upgrade_taken_back(own_pair: MySQLPair) -> None:
    """The machine has one version: MySQL is made to convert its files as at the first start of a newer one."""
    convert = ["--upgrade=FORCE"] if own_pair.even.engine.kind == "mysql" else []
    with servers_on(own_pair.urls) as servers, Load([s.address for s in servers], clients=4) as load:
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
        assert_nothing_was_lost(load.stop())


def run_sql(database: TicketMySQL, block: str, password: str) -> None:
    """What the README has an administrator type, with this password."""
    for statement in filter(str.strip, block.replace("'...'", f"'{password}'").split(";")):
        database.execute(statement)


def test_the_account_of_the_readme_is_all_that_a_ticket_server_needs(own_pair: MySQLPair) -> None:
    for database in own_pair:
        database.execute(f"DROP USER '{USER}'@'127.0.0.1'")
        run_sql(database, readme.block("CREATE USER 'tickets'@'%'"), "a-password")
    with servers_on(own_pair.urls.replace(f"{USER}:{PASSWORD}@", "tickets:a-password@"), 1) as (server,):
        assert server.put("/sequence/albums").status == 201
        assert {server.ticket("albums") % 2 for _ in range(4)} == {0, 1}


def test_a_password_is_changed_without_a_failed_request(own_pair: MySQLPair) -> None:
    old, new = own_pair.urls, own_pair.urls.replace(f"{USER}:{PASSWORD}@", "tickets_2:another-for-tests@")
    assert new != old
    with servers_on(old) as servers:
        answers: list[Answer] = []
        for database in own_pair:
            run_sql(database, readme.block("CREATE USER 'tickets_2'@'%'"), "another-for-tests")
        for server in servers:  # the load balancer has taken it out; the others serve
            others = [other.address for other in servers if other is not server]
            with Load(others, clients=4) as load:
                server.environment["TICKETS_DATABASES"] = new
                server.restart()
                server.wait_health("pass")
                answers += load.stop().answers
        for database in own_pair:
            database.execute(f"DROP USER '{USER}'@'127.0.0.1'")
        with Load([server.address for server in servers], clients=4) as load:
            until_both_draw(load)
            answers += load.stop().answers
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
        readme.run(
            readme.block("curl --fail -X PUT"),
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
