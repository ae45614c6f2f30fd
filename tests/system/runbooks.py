"""Ticket servers under load while a runbook is carried out, and what has to hold afterwards."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from tests.harness.load import Load, Result
from tests.harness.processes import wait_until
from tests.harness.ticketd import PATIENT, TicketServer

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
