"""Two bodies of data for one offset in the model, and each protection taken out: then it goes wrong."""

import re
from collections.abc import Callable

import pytest

from app.tickets.agreement import ring_records
from tests.fakes.ticket_database import FakeServer
from tests.model.bodies import Bodies

SEEDS = 12
LONG = 600
TRIED = 200
"""At the most, until one goes wrong; the seeds that are named find it soon, as long as nothing else changes."""


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(SEEDS, LONG, SEEDS))])
def test_no_ticket_comes_twice_whichever_body_a_server_is_led_to(first: int) -> None:
    for seed in range(first, first + SEEDS):
        Bodies(seed).attack()


def without_announcements(patch: pytest.MonkeyPatch) -> None:
    """A body is taken in whoever uses another one at its offset."""
    patch.setattr(ring_records, "holders", lambda *_: {})


def without_the_announcement_in_the_record(patch: pytest.MonkeyPatch) -> None:
    """A server says that it uses a body with its next probe."""
    record_ring = FakeServer.record_ring
    patch.setattr(FakeServer, "record_ring", lambda self, old, new, *_: record_ring(self, old, new))


@pytest.mark.parametrize(
    ("take_out", "first", "says"),
    [
        (without_announcements, 0, "had given|changes of body"),
        (without_the_announcement_in_the_record, 0, "had given|changes of body"),
    ],
    ids=lambda each: each.__name__.replace("_", " ") if callable(each) else "",
)
@pytest.mark.timeout(300)
def test_without_it_something_goes_wrong(
    take_out: Callable[[pytest.MonkeyPatch], None], first: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_out(monkeypatch)
    for seed in range(first, first + TRIED):
        try:
            Bodies(seed).attack()
        except AssertionError as error:
            if re.search(says, str(error)):
                print(seed, error)
                return
    pytest.fail("nothing goes wrong without it")
