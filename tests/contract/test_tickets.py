"""What the server promises of tickets and blocks: the same on the embedded pair and on MySQL or MariaDB."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.contract.replies import is_problem
from tests.harness.load import Load, Want
from tests.harness.ticketd import TicketServer

NewName = Callable[[], str]

METHODS = ("GET", "POST")


# -- single tickets


@pytest.mark.parametrize("method", METHODS)
def test_a_ticket_is_a_number_and_a_string(ticket_server: TicketServer, sequence: str, method: str) -> None:
    reply = ticket_server.request(method, f"/ticket/{sequence}")
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("application/json")
    assert reply.headers["cache-control"] == "no-store"
    body = reply.json()
    assert list(body) == ["sequence", "id", "id_str"]
    assert body["sequence"] == sequence
    assert isinstance(body["id"], int)
    assert body["id"] >= 1
    assert body["id_str"] == str(body["id"])


@pytest.mark.parametrize("method", METHODS)
def test_a_ticket_as_text_is_the_number_and_a_newline(ticket_server: TicketServer, sequence: str, method: str) -> None:
    reply = ticket_server.request(method, f"/ticket/{sequence}", headers={"Accept": "text/plain"})
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/plain")
    assert reply.headers["cache-control"] == "no-store"
    assert reply.text == f"{int(reply.text)}\n"


ACCEPT = {
    "application/json": False,
    "*/*": False,
    "": False,
    "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": False,
    "text/plain;charset=utf-8": True,
    "text/plain, */*;q=0.1": True,
    "application/json, text/plain": False,
    "application/json, text/plain;q=0.5": False,
    "application/json;q=0.5, text/plain": True,
    "text/plain;q=0": False,
}


def test_json_unless_text_is_preferred(ticket_server: TicketServer, sequence: str) -> None:
    for accept, is_text in ACCEPT.items():
        reply = ticket_server.get(f"/ticket/{sequence}", headers={"Accept": accept})
        assert reply.status == 200
        kind = "text/plain" if is_text else "application/json"
        assert reply.headers["content-type"].startswith(kind), accept


def test_the_first_tickets_are_one_and_two_and_the_databases_alternate(
    ticket_server: TicketServer, sequence: str
) -> None:
    tickets = [ticket_server.ticket(sequence) for _ in range(20)]
    assert sorted(tickets)[:2] == [1, 2]
    assert len(set(tickets)) == 20
    assert all(earlier % 2 != later % 2 for earlier, later in pairwise(tickets)), tickets
    for residue in (0, 1):
        of_one_database = [ticket for ticket in tickets if ticket % 2 == residue]
        assert of_one_database == sorted(of_one_database)


def test_each_sequence_has_a_turn_of_its_own(ticket_server: TicketServer, new_name: NewName) -> None:
    names = [new_name() for _ in range(2)]
    for name in names:
        assert ticket_server.put(f"/sequence/{name}").status == 201
    drawn: dict[str, list[int]] = {name: [] for name in names}
    for name in (names[0], names[1]) * 6:
        drawn[name].append(ticket_server.ticket(name))
    for tickets in drawn.values():
        assert all(earlier % 2 != later % 2 for earlier, later in pairwise(tickets)), drawn


# -- counts


@pytest.mark.parametrize("method", METHODS)
def test_a_count_is_a_list_of_so_many_increasing_ids(ticket_server: TicketServer, sequence: str, method: str) -> None:
    for count in (1, 2, 3, 36, 64, 65, 500, 1000):
        reply = ticket_server.request(method, f"/ticket/{sequence}?count={count}")
        assert reply.status == 200, reply.text
        assert reply.headers["cache-control"] == "no-store"
        body = reply.json()
        assert list(body) == ["sequence", "count", "ids", "ids_str"]
        assert body["sequence"] == sequence
        assert body["count"] == len(body["ids"]) == count
        assert all(earlier < later for earlier, later in pairwise(body["ids"]))
        assert body["ids_str"] == [str(each) for each in body["ids"]]


def test_counts_are_never_drawn_twice(ticket_server: TicketServer, sequence: str) -> None:
    ids: list[int] = []
    for count in (1, 7, 64, 100, 1, 1000, 3):
        ids += ticket_server.get(f"/ticket/{sequence}?count={count}").json()["ids"]
        ids.append(ticket_server.ticket(sequence))
    assert len(set(ids)) == len(ids)


def test_a_count_as_text_is_one_id_a_line(ticket_server: TicketServer, sequence: str) -> None:
    reply = ticket_server.get(f"/ticket/{sequence}?count=5", headers={"Accept": "text/plain"})
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/plain")
    ids = [int(line) for line in reply.text.splitlines()]
    assert reply.text == "".join(f"{each}\n" for each in ids)
    assert len(ids) == 5


NO_NUMBERS = ["0", "-1", "+5", "1e3", "0x10", "１０", "%205", "5%20", "1_000", "01", "", "1.0", "ten", "9" * 30, "5;"]


def test_any_other_count_is_refused_and_draws_nothing(ticket_server: TicketServer, sequence: str) -> None:
    for count in ("1001", *NO_NUMBERS):
        detail = is_problem(ticket_server.get(f"/ticket/{sequence}?count={count}"), 422)
        assert "1000" in detail.replace(",", ""), count
    assert ticket_server.ticket(sequence) == 1


def test_a_count_that_is_given_twice_is_refused(ticket_server: TicketServer, sequence: str) -> None:
    is_problem(ticket_server.get(f"/ticket/{sequence}?count=2&count=3"), 422)


# -- blocks


@pytest.mark.parametrize("method", METHODS)
def test_a_block_is_first_step_and_size(ticket_server: TicketServer, sequence: str, method: str) -> None:
    for size in (1, 2, 64, 10_000):
        reply = ticket_server.request(method, f"/block/{sequence}?size={size}")
        assert reply.status == 200, reply.text
        assert reply.headers["cache-control"] == "no-store"
        body = reply.json()
        assert list(body) == ["sequence", "first", "first_str", "step", "size"]
        assert (body["sequence"], body["size"], body["step"]) == (sequence, size, 2)
        assert body["first_str"] == str(body["first"])


def test_what_is_in_a_block_is_nobody_elses(ticket_server: TicketServer, sequence: str) -> None:
    seen: set[int] = set()
    for size in (1, 10, 1000, 3):
        for _ in range(2):
            body = ticket_server.get(f"/block/{sequence}?size={size}").json()
            ids = [body["first"] + i * body["step"] for i in range(body["size"])]
            ids += ticket_server.get(f"/ticket/{sequence}?count=3").json()["ids"]
            ids.append(ticket_server.ticket(sequence))
            assert len({*ids}) == len(ids)
            assert not seen & set(ids)
            seen |= set(ids)


def test_any_other_size_is_refused_and_draws_nothing(ticket_server: TicketServer, sequence: str) -> None:
    for size in ("10001", *NO_NUMBERS):
        detail = is_problem(ticket_server.get(f"/block/{sequence}?size={size}"), 422)
        assert "10000" in detail.replace(",", ""), size
    assert ticket_server.ticket(sequence) == 1


def test_a_block_without_a_size_is_refused(ticket_server: TicketServer, sequence: str) -> None:
    is_problem(ticket_server.get(f"/block/{sequence}"), 422)


# -- many at once


def test_many_clients_draw_every_way_at_once_and_no_ticket_comes_twice(
    ticket_server: TicketServer, sequence: str
) -> None:
    mix = [Want(sequence, weight=6), Want(sequence, "count", 50, 2), Want(sequence, "block", 2_000, 1)]
    with Load([ticket_server.address], clients=16, mix=mix) as load:
        load.run_until_tickets(300)
    assert load.result.failures() == []
    load.result.check()
    assert {answer.kind for answer in load.result.answers} == {"single", "count", "block"}
