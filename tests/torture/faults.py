"""The faults of databases, networks and servers. Each fault is over when its function returns; what it has harmed may
still be on its way back."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tests.harness.mysqld import TicketMySQL
from tests.harness.proxy import Fault as Network
from tests.harness.schema import PASSWORD, USER
from tests.harness.tally import EVERYBODY
from tests.harness.ticketd import TicketServer
from tests.torture.stage import SETTINGS, Stage

SPARED = 1.05
"""Seconds for which a ticket server may be stopped, and none of its requests fails."""
BEYOND_PATIENCE = 0.85 * SETTINGS["TICKETS_DATABASE_TIMEOUT"]
"""Longer than a ticket server waits for marks, shorter than it waits for a ticket."""


class Fault(NamedTuple):
    """One fault: its name, what it does, how often it comes beside the others, when it can come at all."""

    name: str
    strike: Callable[[Stage], None]
    weight: float = 1
    fits: Callable[[Stage], bool] = lambda stage: True


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
    put_back_as_it_is_now(stage, stage.a_database())


def promote(stage: Stage) -> None:
    put_back_as_it_is_now(stage, stage.a_database(), other_identity=True)


def put_back_as_it_is_now(stage: Stage, database: TicketMySQL, *, other_identity: bool = False) -> None:
    """Copy it, let it draw for a while, and put the copy back."""
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
        stage.start_servers()


# -- the network


def network(stage: Stage) -> None:
    """Between one server, or all of them, and one database."""
    database = stage.a_database()
    links = [links[database] for links in stage.links]
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
        links[stage.a_database()].cut()


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


def stop_for(stage: Stage) -> float:
    """Seconds for which a ticket server stands still: hardly, about its patience with a database, too long."""
    timeout = SETTINGS["TICKETS_DATABASE_TIMEOUT"]
    lengths = [(0.01, 0.01), (0.35, 0.5), (0.65 * timeout, SPARED * timeout), (0.01, 2), (1, 4), (5, 5)]
    return stage.chance.uniform(*stage.chance.choice(lengths))


def stall_servers(stage: Stage) -> None:
    """For a short time, and some of them again and again; requests wait for them."""
    for _ in range(stage.chance.randint(1, 4)):
        servers = stage.some_servers()
        seconds = stop_for(stage)
        with contextlib.ExitStack() as stack:
            if seconds > SPARED:
                stack.enter_context(stage.without(*servers))
            for server in servers:
                server.freeze()
            time.sleep(seconds)
            for server in servers:
                server.thaw()
                if seconds > SPARED:
                    server.wait_ready()
        stage.pause(0, 0.5)


@contextlib.contextmanager
def stalling(stage: Stage, servers: Sequence[TicketServer]) -> Iterator[None]:
    """Meanwhile each of these servers stands still again and again, for as long as the lot says; requests may fail."""
    over = threading.Event()
    patience_is_over = stage.perhaps()
    lot = {server: [(stop_for(stage), stage.chance.uniform(0, 0.4)) for _ in range(40)] for server in servers}

    def stall(server: TicketServer) -> None:
        for seconds, running in lot[server]:
            stopped = BEYOND_PATIENCE if patience_is_over else seconds
            server.freeze()
            over.wait(stopped)
            server.thaw()
            if over.wait(running):
                return

    with stage.without(*servers):
        threads = [threading.Thread(target=stall, args=[server]) for server in servers]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()
        for server in servers:
            server.wait_ready()


def stall_while_a_database_goes_back(stage: Stage) -> None:
    with stalling(stage, stage.some_servers()):
        put_back_as_it_is_now(stage, stage.a_database())
        stage.pause(1, 4)  # every lane reserves anew


def freeze_while_a_database_goes_back(stage: Stage) -> None:
    """From before it goes back until after it."""
    servers = stage.some_servers()
    with stage.without(*servers):
        for server in servers:
            server.freeze()
        put_back_as_it_is_now(stage, stage.a_database())
        for server in servers:
            stage.pause(0, 0.5)
            server.thaw()
        for server in servers:
            server.wait_ready()


def name_service(stage: Stage) -> None:
    """Away or silent, for some of the servers, long enough to be asked more than once."""
    outages = [stage.chance.choice((names.away, names.silent)) for names in stage.some_name_services()]
    for outage in outages:
        outage.touch()
    stage.pause(1, 12)
    for outage in outages:
        outage.unlink()


def name_service_while_connections_are_cut(stage: Stage) -> None:
    """What was cut cannot be had again before it is back."""
    with stage.tally.excuses(EVERYBODY):
        for names in stage.names:
            names.away.touch()
        cut(stage)
        stage.pause(0.5, 4)
        for names in stage.names:
            names.away.unlink()
        stage.wait_until_well()


# -- everything


def kill_all_databases(stage: Stage) -> None:
    with stage.tally.excuses(EVERYBODY):
        stage.pair.kill()
        stage.pair.start()
        stage.wait_until_well()


def kill_everything(stage: Stage) -> None:
    with stage.tally.excuses(EVERYBODY):
        for each in (*stage.servers, *stage.pair):
            each.kill()
        stage.pair.start()
        stage.start_servers()
        stage.wait_until_well()


COMMON_FAULTS = (
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
    Fault("servers stalled", stall_servers, 3),
    Fault("database put back while servers stalled", stall_while_a_database_goes_back, 3),
    Fault("database put back while servers were frozen", freeze_while_a_database_goes_back),
    Fault("name service away", name_service, 2),
    Fault("name service away and connections cut", name_service_while_connections_are_cut),
    Fault("all databases killed", kill_all_databases),
    Fault("everything killed", kill_everything),
)
