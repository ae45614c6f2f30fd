"""How many clients may be connected."""

import resource

import pytest

from app.connections import FOR_ONE_ANSWER, Admission, Connections, Tally, most_connections
from app.errors import TicketError


def test_so_many_are_served_32_more_get_one_answer_and_the_rest_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    connections = Connections(2, tally := Tally())
    admitted = [connections.admit() for _ in range(2 + FOR_ONE_ANSWER + 3)]
    assert admitted == [Admission.SERVED] * 2 + [Admission.ONE_ANSWER] * 32 + [Admission.REFUSED] * 3
    assert (tally.client_connections, tally.connections_refused, len(caplog.records)) == (34, 35, 1)
    for left in (Admission.ONE_ANSWER, Admission.SERVED):
        connections.leave(Admission.REFUSED)
        assert connections.admit() is Admission.REFUSED
        connections.leave(left)
        assert connections.admit() is left
    for admission in admitted:
        connections.leave(admission)
    assert tally.client_connections == 0


@pytest.mark.parametrize(
    ("wanted", "hard", "most"),
    [(None, 65_536, 10_000), (20_000, 65_536, 20_000), (None, 1_024, 832), (900, 1_024, 832), (5, 193, 1)],
)
def test_10000_are_served_or_so_many_as_the_raised_limit_on_open_files_allows_if_it_leaves_any(
    wanted: int | None, hard: int, most: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limits = [64, hard]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: limits.__setitem__(slice(None), wanted))
    assert most_connections(wanted) == most
    assert limits == [hard, hard]
    assert len(caplog.records) == (most < (wanted or 10_000))
    limits[:] = 192, 192
    with pytest.raises(TicketError, match="the limit on open files is 192, and the server needs more than 192"):
        most_connections(None)
