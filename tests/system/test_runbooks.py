"""The runbooks of docs/operations on databases and ticket servers, each carried out as it stands there, under load."""

import socket
from contextlib import ExitStack
from pathlib import Path

from tests.deploy.front import HAProxy
from tests.documents import pages
from tests.harness.history import Answer
from tests.harness.load import Load, Result
from tests.harness.mysqld import TicketMySQL
from tests.harness.pair import MySQLPair
from tests.harness.processes import free_port, wait_until
from tests.harness.schema import PASSWORD, USER
from tests.harness.ticketd import PATIENT, TicketServer
from tests.system.runbooks import PAUSE, all_pass, assert_nothing_was_lost, ended, servers_on, until_both_draw


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
