"""What is done to databases, networks and servers. Each fault is over when its function returns; what it has harmed may
still be on its way back."""

from collections.abc import Callable
from typing import NamedTuple

from tests.harness.mysqld import TicketMySQL
from tests.harness.proxy import Fault as Network
from tests.harness.schema import PASSWORD, USER
from tests.harness.tally import EVERYBODY
from tests.torture.stage import Stage


class Fault(NamedTuple):
    """One fault: its name, what it does, how often it comes beside the others."""

    name: str
    strike: Callable[[Stage], None]
    weight: float = 1


# -- a database, one at a time


def kill(stage: Stage) -> None:
    database = stage.a_database()
    database.kill()
    stage.pause(0, 1)
    database.restart()


def stop(stage: Stage) -> None:
    stage.a_database().restart()


def freeze(stage: Stage) -> None:
    database = stage.a_database()
    database.freeze()
    stage.pause(0.1, 3)
    database.thaw()


def restart_without_flags(stage: Stage) -> None:
    database = stage.a_database()
    database.restart(kill=True, offset_flags=False)
    stage.pause()
    database.restart(kill=True)


def read_only(stage: Stage) -> None:
    database = stage.a_database()
    database.execute("SET GLOBAL read_only = 1", database=None)
    stage.pause()
    database.execute("SET GLOBAL read_only = 0", database=None)


def lock_table(stage: Stage) -> None:
    with stage.a_database().locked(stage.a_sequence()):
        stage.pause(0.1, 3)


def end_connections(stage: Stage) -> None:
    stage.a_database().end_connections()


def change_password(stage: Stage) -> None:
    database = stage.a_database()
    database.execute(f"ALTER USER '{USER}'@'127.0.0.1' IDENTIFIED BY 'another one'", database=None)
    database.end_connections()
    stage.pause()
    database.execute(f"ALTER USER '{USER}'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'", database=None)


def use_up_connections(stage: Stage) -> None:
    with stage.a_database().crowded():
        stage.pause()


# -- a database that goes back in time


def truncate(stage: Stage) -> None:
    stage.a_database().execute(f"TRUNCATE `{stage.a_sequence()}`")


def remake(stage: Stage) -> None:
    """In one stroke: a server that found the table missing would make it."""
    database, sequence = stage.a_database(), stage.a_sequence()
    database.execute(f"CREATE TABLE _new LIKE `{sequence}`")
    database.execute(f"RENAME TABLE `{sequence}` TO _old, _new TO `{sequence}`")
    database.execute("DROP TABLE _old")


def drop(stage: Stage) -> None:
    stage.a_database().execute(f"DROP TABLE `{stage.a_sequence()}`")


def put_back(stage: Stage) -> None:
    _put_back(stage, stage.a_database(), other_identity=False)


def promote(stage: Stage) -> None:
    _put_back(stage, stage.a_database(), other_identity=True)


def _put_back(stage: Stage, database: TicketMySQL, *, other_identity: bool) -> None:
    saved = database.save_data_directory()
    stage.pause(0.5, 2)
    database.kill()
    database.restore_data_directory(saved)
    if other_identity:
        (database.data / "auto.cnf").unlink(missing_ok=True)
    database.remove_saved(saved)
    database.restart()


def replace_by_empty(stage: Stage) -> None:
    database = stage.a_database()
    database.wipe(tables=stage.chance.random() < 0.5)
    database.restart()


def put_back_while_no_server_runs(stage: Stage) -> None:
    database = stage.a_database()
    with stage.tally.excuses(EVERYBODY):
        saved = database.save_data_directory()
        stage.pause(0.3, 1)
        for server in stage.servers:
            server.kill()
        database.kill()
        database.restore_data_directory(saved)
        database.remove_saved(saved)
        database.restart()
        for server in stage.servers:
            server.start()
        for server in stage.servers:
            server.wait_ready()


# -- the network


def network(stage: Stage) -> None:
    """Between one server, or all of them, and one database."""
    index = stage.chance.randrange(len(stage.pair))
    links = [links[index] for links in stage.links]
    if stage.chance.random() < 0.5:
        links = [stage.chance.choice(links)]
    fault = stage.chance.choice([each for each in Network if each is not Network.NONE])
    for link in links:
        link.set_fault(fault, seconds=stage.chance.uniform(0.2, 2))
        if fault in (Network.RESET_ON_CONNECT, Network.STALL_HANDSHAKE):
            link.cut()
    stage.pause(0.2, 3)
    for link in links:
        link.restore()


def cut(stage: Stage) -> None:
    for links in stage.links:
        stage.chance.choice(links).cut()


# -- the ticket servers


def kill_server(stage: Stage) -> None:
    server = stage.a_server()
    with stage.without(server):
        server.kill()
        stage.pause(0, 0.5)
        server.start()
        server.wait_ready()


def stop_server(stage: Stage) -> None:
    server = stage.a_server()
    with stage.without(server):
        server.restart()
        server.wait_ready()


def freeze_server(stage: Stage) -> None:
    server = stage.a_server()
    with stage.without(server):
        server.freeze()
        stage.pause(0.2, 4)
        server.thaw()
        server.wait_ready()


def freeze_server_while_a_database_goes_back(stage: Stage) -> None:
    server = stage.a_server()
    with stage.without(server):
        server.freeze()
        _put_back(stage, stage.a_database(), other_identity=False)
        server.thaw()
        server.wait_ready()


# -- everything


def kill_both_databases(stage: Stage) -> None:
    with stage.tally.excuses(EVERYBODY):
        stage.pair.kill()
        stage.pair.start()
        stage.wait_until_well()


def kill_everything(stage: Stage) -> None:
    with stage.tally.excuses(EVERYBODY):
        for each in (*stage.servers, *stage.pair):
            each.kill()
        stage.pair.start()
        for server in stage.servers:
            server.start()
        for server in stage.servers:
            server.wait_ready()
        stage.wait_until_well()


FAULTS = (
    Fault("database killed", kill, 3),
    Fault("database stopped", stop),
    Fault("database frozen", freeze, 3),
    Fault("database restarted without its flags", restart_without_flags),
    Fault("database read-only", read_only),
    Fault("table locked", lock_table, 2),
    Fault("connections ended", end_connections),
    Fault("password changed", change_password),
    Fault("connections used up", use_up_connections),
    Fault("table truncated", truncate, 2),
    Fault("table remade", remake),
    Fault("table dropped", drop),
    Fault("database put back", put_back, 2),
    Fault("replica promoted", promote),
    Fault("database replaced by an empty one", replace_by_empty, 2),
    Fault("database put back while no server ran", put_back_while_no_server_runs),
    Fault("network", network, 6),
    Fault("connections cut", cut, 2),
    Fault("server killed", kill_server, 2),
    Fault("server stopped", stop_server),
    Fault("server frozen", freeze_server, 2),
    Fault("database put back while a server was frozen", freeze_server_while_a_database_goes_back),
    Fault("both databases killed", kill_both_databases),
    Fault("everything killed", kill_everything),
)
