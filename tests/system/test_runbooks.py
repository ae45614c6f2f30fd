"""The runbooks of deploy/README.md, each carried out as it stands there, under load."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.harness.commands import ticketd
from tests.harness.history import Answer
from tests.harness.load import Load, Result
from tests.harness.pair import MySQLPair
from tests.harness.processes import wait_until
from tests.harness.schema import LEAST_PRIVILEGES, PASSWORD, SCHEMA, USER
from tests.harness.ticketd import PATIENT, TicketServer


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


def test_a_password_is_changed_without_a_failed_request(own_pair: MySQLPair) -> None:
    old, new = own_pair.urls, own_pair.urls.replace(f"{USER}:{PASSWORD}@", "ticketd_2:another-for-tests@")
    assert new != old
    with servers_on(old) as servers:
        answers: list[Answer] = []
        for database in own_pair:
            database.execute("CREATE USER 'ticketd_2'@'127.0.0.1' IDENTIFIED BY 'another-for-tests'")
            database.execute(f"GRANT {LEAST_PRIVILEGES} ON `{SCHEMA}`.* TO 'ticketd_2'@'127.0.0.1'")
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


def test_an_old_auto_increment_table_becomes_a_sequence(own_pair: MySQLPair) -> None:
    own_pair.odd.execute("CREATE DATABASE app")
    own_pair.odd.execute("CREATE TABLE app.pictures (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, title TEXT)")
    own_pair.odd.execute("INSERT INTO app.pictures (id, title) VALUES (123456, 'the last one')")
    own_pair.odd.execute(f"GRANT SELECT ON app.pictures TO '{USER}'@'127.0.0.1'")
    source = f"mysql://{USER}:{PASSWORD}@127.0.0.1:{own_pair.odd.port}/app/pictures.id"
    with servers_on(own_pair.urls) as servers:
        assert servers[0].put("/sequence/pictures").status == 201
        assert ticketd("bump", "pictures", "--from", source, "--url", servers[0].url).status == 0
        tickets = [server.ticket("pictures") for server in servers for _ in range(4)]
    assert len(set(tickets)) == len(tickets)
    assert min(tickets) > 123456
