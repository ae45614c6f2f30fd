"""The changes of the ring: growth as the runbook has it, and every way in which somebody may get it wrong.

After a mistake the servers with wrong settings have to refuse, and say why; then it is put right. No ticket may come
twice, whoever was restarted when.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.harness.commands import clean_environment, command_line
from tests.harness.mysqld import TicketMySQL
from tests.harness.processes import ChildProcess, new_directory, remove_directory, wait_until
from tests.harness.schema import SCHEMA
from tests.harness.tally import EVERYBODY
from tests.harness.ticketd import TicketServer
from tests.torture.faults import Fault
from tests.torture.stage import SETTINGS, Stage

LARGEST_INCREMENT = 5
REASONS = ("increment", "offset", "ring", "same server")
"""What a server that refuses a database says is one of these."""
GROW_WATCHES = 4.0
"""Seconds for which `grow` looks for servers that are alive; the change itself comes after them."""
ATTEMPTS = 5
RESERVE_LASTS = 5.0
"""Seconds for which a server may hand out its reserve while it refuses every database: its window, and some more."""


def has_spare(stage: Stage) -> bool:
    return stage.spare is not None


def has_no_spare(stage: Stage) -> bool:
    return stage.spare is None


def has_no_room(stage: Stage) -> bool:
    return stage.spare is not None and stage.increment == len(stage.pair)


def has_room(stage: Stage) -> bool:
    return stage.spare is not None and stage.increment > len(stage.pair)


def has_three(stage: Stage) -> bool:
    return len(stage.pair) >= 3


# -- as the runbook has it


def grow(stage: Stage) -> None:
    """One database more, or another increment."""
    increment = stage.chance.randint(len(stage.pair) + 1, LARGEST_INCREMENT)
    _change(stage, increment, joins=True)


def change_increment(stage: Stage) -> None:
    choices = [each for each in range(len(stage.pair), LARGEST_INCREMENT + 1) if each != stage.increment]
    _change(stage, stage.chance.choice(choices))


def shrink(stage: Stage) -> None:
    """The last database leaves."""
    increment = stage.chance.randint(len(stage.pair) - 1, LARGEST_INCREMENT)
    _change(stage, increment, leaves=True)


def _change(stage: Stage, increment: int, *, joins: bool = False, leaves: bool = False) -> None:
    """All servers stopped, the databases set, `grow`, all servers started; perhaps a copy from before is put back."""
    with stage.tally.excuses(EVERYBODY):
        goes_back = stage.chance.choice(stage.pair.databases[:-1] if leaves else stage.pair.databases)
        saved = goes_back.save_data_directory() if stage.perhaps(0.4) else None
        stage.pause(0, 1)
        stage.stop_servers()
        time.sleep(1)  # what they have still answered has arrived
        if joins:
            stage.prepare_spare(len(stage.pair) + 1, increment=increment, empty=stage.perhaps())
            stage.take_spare_in()
        if leaves:
            stage.take_last_out()
        stage.use_ring(increment)
        stage.number_all()
        for server in stage.servers:
            stage.configure(server, increment=stage.chance.choice([None, increment]))
        _grow_to_the_end(stage)
        if saved is not None and stage.perhaps():
            _restore(goes_back, saved)
            saved = None
        stage.start_servers()
        stage.wait_until_well()
    if saved is not None:
        stage.pause()
        _restore(goes_back, saved)


def _restore(database: TicketMySQL, saved: Path) -> None:
    database.kill()
    database.restore_data_directory(saved)
    database.remove_saved(saved)
    database.restart()


def _grow_to_the_end(stage: Stage) -> None:
    """Run `grow`, perhaps not at once to its end."""
    if stage.perhaps():
        with _growing(stage) as command:
            time.sleep(stage.chance.choice([stage.chance.uniform(0, GROW_WATCHES), GROW_WATCHES]))
            stage.pause(0, 1.5)
            if stage.perhaps():
                command.kill()
            else:
                database = stage.a_database()
                database.kill()
                command.wait(60)
                database.restart()
        if stage.perhaps():  # whatever is recorded now: what a server gives out counts
            stage.start_servers([stage.servers[0]], ready=False)
            stage.pause()
            stage.servers[0].kill()
    for _ in range(ATTEMPTS):
        with _growing(stage) as command:
            if command.wait(60) == 0:
                return
            said = command.output.read_text(encoding="utf-8")
        time.sleep(1)  # connections of servers that were killed, which a database has not noticed yet
    raise TimeoutError(f"`ticketd grow` was refused {ATTEMPTS} times: {said}")


class _Command(ChildProcess):
    """`ticketd grow` and what it says."""

    def __init__(self, stage: Stage, directory: Path) -> None:
        self.output = directory / "output"
        settings = {"TICKETS_DATABASES": stage.pair.urls_of(SCHEMA), **SETTINGS}
        command = command_line("grow", "--increment", stage.increment)
        where = Path(__file__).resolve().parents[2]
        super().__init__(command, stdout=self.output, stderr=self.output, cwd=where, env=clean_environment(settings))


@contextlib.contextmanager
def _growing(stage: Stage) -> Iterator[_Command]:
    directory = new_directory("tickets-grow-")
    try:
        yield _Command(stage, directory)
    finally:
        remove_directory(directory)


def grow_under_servers(stage: Stage) -> None:
    """With servers alive or frozen: refused, and nothing happens."""
    frozen = stage.a_server() if stage.perhaps() else None
    with contextlib.ExitStack() as stack:
        if frozen is not None:
            stack.enter_context(stage.without(frozen))
            frozen.freeze()
        with _growing(stage) as command:
            status = command.wait(60)
            said = command.output.read_text(encoding="utf-8")
        if frozen is not None:
            frozen.thaw()
            frozen.wait_ready()
    if status != 1 or "is in use by" not in said:
        stage.tally.fail(f"growth was not refused while ticket servers ran: status {status}, {said}")


def add_into_room(stage: Stage) -> None:
    """A database at an offset that the increment has left free: the servers are restarted one after the other."""
    stage.prepare_spare(len(stage.pair) + 1, empty=stage.perhaps())
    stage.take_spare_in()
    stage.use_ring(stage.increment)
    _restart_one_by_one(stage)


def _restart_one_by_one(stage: Stage) -> None:
    for server in stage.chance.sample(stage.servers, len(stage.servers)):
        stage.configure(server)
        with stage.without(server):
            stage.stop_servers([server])
            stage.start_servers([server])
        stage.pause(0, 1)


# -- mistakes


def longer_list(stage: Stage) -> None:
    """As if a database could be added by listing it."""
    wrong = len(stage.pair) + 1
    spare = stage.prepare_spare(wrong, increment=wrong, empty=stage.perhaps())
    listed = [*stage.pair, spare]
    _mistake(stage, listed, wrong=wrong, increment=stage.chance.choice([None, wrong]), refused=listed)


def other_increment(stage: Stage) -> None:
    choices = [each for each in range(len(stage.pair), LARGEST_INCREMENT + 1) if each != stage.increment]
    wrong = stage.chance.choice(choices)
    _mistake(stage, stage.pair.databases, wrong=wrong, increment=wrong, refused=stage.pair.databases)


def databases_of_another_increment(stage: Stage) -> None:
    """The databases are set as for growth, and the servers restarted as they were."""
    wrong = stage.chance.choice([each for each in range(1, LARGEST_INCREMENT + 2) if each != stage.increment])
    with stage.tally.excuses(EVERYBODY):
        _mistake(stage, stage.pair.databases, wrong=wrong, refused=stage.pair.databases, numbered=True)


def swapped_list(stage: Stage) -> None:
    """In another order; perhaps the databases' offsets are made to fit it."""
    listed = stage.chance.sample(stage.pair.databases, len(stage.pair))
    while listed == stage.pair.databases:
        stage.chance.shuffle(listed)
    refused = [one for one, other in zip(listed, stage.pair, strict=True) if one is not other]
    if stage.perhaps():
        with stage.tally.excuses(EVERYBODY):
            for offset, database in enumerate(listed, 1):
                stage.number(database, offset)
            _mistake(stage, listed, refused=refused)
    else:
        _mistake(stage, listed, refused=refused)


def shorter_list(stage: Stage) -> None:
    """Without the last: no contradiction, the servers serve from the others."""
    _mistake(stage, stage.pair.databases[:-1], refused=[])


def _mistake(
    stage: Stage,
    listed: Sequence[TicketMySQL],
    *,
    refused: Sequence[TicketMySQL],
    increment: int | None = None,
    wrong: int | None = None,
    numbered: bool = False,
) -> None:
    """Some servers are restarted with this list and increment, and have to refuse these databases; then put it right.

    `wrong`: an increment that the databases may be set to as well, before or after it; `numbered`: they are.
    """
    servers = stage.some_servers()
    before = stage.perhaps()
    numbered = wrong is not None and (numbered or stage.perhaps())
    with contextlib.ExitStack() as stack:
        stack.enter_context(stage.tally.excuses(EVERYBODY) if numbered else stage.without(*servers))
        if numbered and before:
            stage.number_all(wrong)
        stage.stop_servers(servers)
        for server in servers:
            stage.configure(server, listed, increment=increment)
        stage.start_servers(servers, ready=False)
        if numbered and not before:
            stage.number_all(wrong)
        stage.pause(0.5, 2)
        for server in servers:
            _has_to_refuse(stage, server, listed, refused)
        stage.pause(0, 1)
        if before:
            stage.number_all()
        stage.stop_servers(servers)
        for server in servers:
            stage.configure(server)
        if not before:
            stage.number_all()
        stage.start_servers(servers)
        stage.wait_until_well()


def _has_to_refuse(
    stage: Stage, server: TicketServer, listed: Sequence[TicketMySQL], refused: Sequence[TicketMySQL]
) -> None:
    """These databases are not up, with a reason; where those are all, it is not ready, and has no ticket, as soon as
    what it had in reserve may not be handed out any more."""

    def refuses() -> bool:
        found = zip(listed, server.databases(), strict=True)
        return all(
            each["status"] != "up" and any(word in (each["last_error"] or "") for word in REASONS)
            for database, each in found
            if database in refused
        )

    try:
        wait_until(refuses, 15, "it")
    except TimeoutError:
        stage.tally.fail(f"unrefused: {server.name} has {server.get('/healthz').text} of {stage.pair.databases}")
        return
    if len(refused) == len(listed):
        try:
            wait_until(lambda: server.get("/readyz").status == 503, RESERVE_LASTS if stage.has_reserves else 0.0, "it")
        except TimeoutError:
            stage.tally.fail(f"unrefused: {server.name} is ready")
        sequence = stage.a_sequence()
        if server.get(f"/ticket/{sequence}").status == 200:
            stage.tally.fail(f"unrefused: {server.name} gave a ticket of {sequence}")


def another_in_its_place(stage: Stage) -> None:
    """Some servers list the spare database where the others list the one that it replaces, which is well; in the end
    all have the one or the other. One database of the ring is the same for all."""
    place = stage.chance.randrange(len(stage.pair))
    spare = stage.prepare_spare(place + 1, empty=True)
    replaced = stage.pair.databases[place]
    stage.pair.databases[place] = spare
    servers = stage.some_servers()
    with stage.without(*servers):
        stage.stop_servers(servers)
        for server in servers:
            stage.configure(server)
        stage.start_servers(servers)
    stage.pause(0.5, 3)
    if stage.perhaps():
        stage.spare = replaced
    else:
        stage.pair.databases[place] = replaced
    _restart_one_by_one(stage)


# -- three databases


def witnesses_away(stage: Stage) -> None:
    """One database is away while another one draws, whose marks the rest keeps. The servers are restarted, and that
    other one is put back."""
    away, goes_back, *witnesses = stage.chance.sample(stage.pair.databases, len(stage.pair))
    unasked = stage.perhaps(0.4)
    with stage.tally.excuses(EVERYBODY):
        saved = goes_back.save_data_directory()
        away.kill()
        stage.pause(1, 3)
        stage.stop_servers()
        if unasked:  # those that know are away when it returns: until they are back it must not draw
            for witness in witnesses:
                witness.kill()
        _restore(goes_back, saved)
        returns_first = unasked or stage.perhaps()
        if returns_first:
            away.restart()
        for server in stage.servers:
            stage.configure(server, refuse_unverified=unasked)
        stage.start_servers(ready=not unasked)
        stage.pause(0.5, 2)
        if not returns_first:
            away.restart()
        for witness in witnesses:
            if not witness.running:
                witness.restart()
        stage.wait_until_well()
    if unasked:
        _restart_one_by_one(stage)


def witness_returns_before_the_restart(stage: Stage) -> None:
    """One database was away while another one drew, and vouches for it later, in the eyes of servers that were not
    there."""
    away, goes_back, *_ = stage.chance.sample(stage.pair.databases, len(stage.pair))
    saved = goes_back.save_data_directory()
    away.kill()
    stage.pause(0.5, 2)
    away.restart()
    stage.wait_until_well()
    with stage.tally.excuses(EVERYBODY):
        stage.stop_servers()
        _restore(goes_back, saved)
        stage.start_servers()


RING_FAULTS = (
    Fault("ring: grown", grow, 2, has_spare),
    Fault("ring: increment changed", change_increment),
    Fault("ring: last database left", shrink, 2, has_no_spare),
    Fault("ring: database added into room", add_into_room, 1, has_room),
    Fault("ring: growth while servers run", grow_under_servers),
    Fault("mistake: longer list", longer_list, 2, has_no_room),
    Fault("mistake: another increment", other_increment, 2),
    Fault("mistake: databases of another increment", databases_of_another_increment),
    Fault("mistake: list in another order", swapped_list, 2),
    Fault("mistake: shorter list", shorter_list),
    Fault("mistake: another database in the place of one", another_in_its_place, 2, has_spare),
    Fault("witnesses away over a restart of all servers", witnesses_away, 3, has_three),
    Fault("witness back before a restart of all servers", witness_returns_before_the_restart, 1, has_three),
)
