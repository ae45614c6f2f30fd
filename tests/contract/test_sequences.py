"""What the server promises of sequences: the same on the embedded pair and on MySQL or MariaDB."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from tests.contract.replies import description, is_problem
from tests.harness.ticketd import TicketServer

NewName = Callable[[], str]


# -- names

NEVER_SQL = [
    "a;b",
    "a`b",
    "`photos`",
    "photos'",
    'photos"',
    "photos--",
    "photos /*x*/",
    "photos WHERE 1=1",
    "a" * 65,
    "information_schema.tables",
    "tickets.photos",
    "_probe",
    "_high_water",
    "_inner_high_water",
    "_servers",
    "_1",
    "_12345678901234567890",
    "1photos",
    "photös",
    "фото",
    "pho\u200btos",
    "ｐhotos",
    "%",
    "%s",
    "{0}",
    "a b",
    "photos\n",
    "photos\x00",
]


@pytest.mark.parametrize("name", NEVER_SQL, ids=ascii)
def test_a_name_that_is_none_never_reaches_a_database(ticket_server: TicketServer, name: str) -> None:
    path = quote(name, safe="")
    for reply in (
        ticket_server.get(f"/ticket/{path}"),
        ticket_server.get(f"/block/{path}?size=2"),
        ticket_server.get(f"/sequence/{path}"),
        ticket_server.put(f"/sequence/{path}"),
        ticket_server.post(f"/sequence/{path}/bump", json={"above": 5}),
    ):
        is_problem(reply, reply.status if "/" in name and reply.status == 404 else 422)


@pytest.mark.parametrize("path", ["/ticket/", "/ticket/../x", "/ticket/%2e%2e%2fx", "/ticket/a/b", "/block/?size=1"])
def test_a_path_that_holds_no_name_is_refused(ticket_server: TicketServer, path: str) -> None:
    answer = ticket_server.raw(f"GET {path} HTTP/1.1\r\nHost: tickets\r\nConnection: close\r\n\r\n".encode())
    status = int(answer.split(b" ", 2)[1])
    assert status in (404, 422), answer


@pytest.mark.parametrize("name", ["schemata", "user", "x" * 64, "SELECT", "a", "Z_9"])
def test_a_sequence_that_is_not_there_is_not_found_and_how_to_make_it_is_said(
    ticket_server: TicketServer, name: str
) -> None:
    for reply in (
        ticket_server.get(f"/ticket/{name}"),
        ticket_server.get(f"/block/{name}?size=2"),
        ticket_server.get(f"/sequence/{name}"),
        ticket_server.post(f"/sequence/{name}/bump", json={"above": 5}),
    ):
        assert f"PUT /sequence/{name}" in is_problem(reply, 404)


def test_a_name_may_be_a_word_of_sql_and_64_letters_long(ticket_server: TicketServer, new_name: NewName) -> None:
    longest = new_name().ljust(64, "x")
    for name in ("table", "Order", longest):
        assert ticket_server.put(f"/sequence/{name}").status in (200, 201)
        assert ticket_server.ticket(name) >= 1
        assert description(ticket_server, name)["sequence"] == name


# -- making sequences


def test_a_sequence_is_made_once_and_found_again(ticket_server: TicketServer, new_name: NewName) -> None:
    name = new_name()
    is_problem(ticket_server.get(f"/ticket/{name}"), 404)
    made = ticket_server.put(f"/sequence/{name}", json={"bits": 64, "start": 1})
    assert made.status == 201
    again = ticket_server.put(f"/sequence/{name}", json={"bits": 64, "start": 1})
    assert again.status == 200
    assert made.json() | {"databases": []} == again.json() | {"databases": []}
    body = made.json()
    assert (body["sequence"], body["bits"], body["exhausted"]) == (name, 64, False)
    assert (body["ceiling"], body["ceiling_str"]) == (2**63 - 1, str(2**63 - 1))
    assert ticket_server.ticket(name) in (1, 2)


@pytest.mark.parametrize("body", [None, {}, {"bits": None}, {"start": None}, {"bits": 64}, {"start": 1}, {"start": 9}])
def test_what_is_left_out_is_not_compared_and_start_never_is(
    ticket_server: TicketServer, new_name: NewName, body: dict[str, Any] | None
) -> None:
    name = new_name()
    options: dict[str, Any] = {} if body is None else {"json": body}
    assert ticket_server.put(f"/sequence/{name}", **options).status == 201
    assert ticket_server.put(f"/sequence/{name}", **options).status == 200
    assert ticket_server.put(f"/sequence/{name}").status == 200
    assert ticket_server.put(f"/sequence/{name}", json={"start": 77}).status == 200
    is_problem(ticket_server.put(f"/sequence/{name}", json={"bits": 32}), 409)


def test_a_32_bit_sequence_ends_where_its_column_does(ticket_server: TicketServer, new_name: NewName) -> None:
    name = new_name()
    body = ticket_server.put(f"/sequence/{name}", json={"bits": 32}).json()
    assert (body["bits"], body["ceiling"], body["ceiling_str"]) == (32, 2**32 - 1, str(2**32 - 1))
    assert ticket_server.put(f"/sequence/{name}").status == 200
    is_problem(ticket_server.put(f"/sequence/{name}", json={"bits": 64}), 409)


@pytest.mark.parametrize("start", [1, 2, 1000, 1001, 2**40, "9007199254740993"])
def test_every_ticket_is_at_least_start(ticket_server: TicketServer, new_name: NewName, start: int | str) -> None:
    name = new_name()
    assert ticket_server.put(f"/sequence/{name}", json={"start": start}).status == 201
    tickets = [ticket_server.ticket(name) for _ in range(4)]
    assert min(tickets) == int(start)
    assert max(tickets) <= int(start) + 4


MALFORMED: list[Any] = [
    {"bits": 16},
    {"bits": "64"},
    {"bits": 64.5},
    {"bits": True},
    {"start": 0},
    {"start": -1},
    {"start": 1.5},
    {"start": "one"},
    {"start": "１"},
    {"start": [1]},
    {"step": 3},
    [],
    "bits",
    7,
]
NO_JSON = [b"{", b"\xff", b'{"bits":64', b"{'bits': 64}", b'{"start": 1e400}', b'{"start": 1' + b"0" * 5000 + b"}"]


def test_a_body_that_is_malformed_is_refused_and_makes_nothing(ticket_server: TicketServer, new_name: NewName) -> None:
    name = new_name()
    for content in [*(json.dumps(body).encode() for body in MALFORMED), *NO_JSON]:
        reply = ticket_server.put(f"/sequence/{name}", content=content, headers={"Content-Type": "application/json"})
        assert reply.status == 422, (content[:100], reply.text)
        is_problem(reply, 422)
    is_problem(ticket_server.get(f"/sequence/{name}"), 404)


@pytest.mark.parametrize("query", ["bits=32", "start=5", "kind=uuid4", "Bits=", "x"])
def test_a_parameter_in_the_query_of_a_change_is_refused_and_changes_nothing(
    ticket_server: TicketServer, new_name: NewName, query: str
) -> None:
    name = new_name()
    said = is_problem(ticket_server.put(f"/sequence/{name}?{query}"), 422)
    assert said == f"there is no parameter {query.partition('=')[0]}; there are none"
    is_problem(ticket_server.get(f"/sequence/{name}"), 404)
    assert ticket_server.put(f"/sequence/{name}?_={query}", json={}).status == 201
    is_problem(ticket_server.post(f"/sequence/{name}/bump?force=true", json={"above": 1_000}), 422)
    assert ticket_server.ticket(name) in (1, 2)
    assert ticket_server.post(f"/sequence/{name}/bump?_=1", json={"above": 1_000}).status == 200


@pytest.mark.parametrize(("bits", "ceiling"), [(32, 2**32 - 1), (64, 2**63 - 1)])
def test_a_start_at_or_above_the_ceiling_conflicts(
    ticket_server: TicketServer, new_name: NewName, bits: int, ceiling: int
) -> None:
    name = new_name()
    for start in (ceiling, ceiling + 1, str(ceiling)):
        is_problem(ticket_server.put(f"/sequence/{name}", json={"bits": bits, "start": start}), 409)
    is_problem(ticket_server.get(f"/sequence/{name}"), 404)


def test_a_name_that_differs_by_case_alone_conflicts(ticket_server: TicketServer, new_name: NewName) -> None:
    name = new_name()
    assert ticket_server.put(f"/sequence/{name}").status == 201
    assert name in is_problem(ticket_server.put(f"/sequence/{name.upper()}"), 409)
    is_problem(ticket_server.get(f"/ticket/{name.upper()}"), 404)
    is_problem(ticket_server.get(f"/sequence/{name.upper()}"), 404)
    assert ticket_server.ticket(name) in (1, 2)


# -- looking at sequences


def test_a_sequence_shows_where_each_database_stands(ticket_server: TicketServer, sequence: str) -> None:
    tickets = [ticket_server.ticket(sequence) for _ in range(6)]
    body = description(ticket_server, sequence)
    assert list(body) == [
        "sequence", "bits", "ceiling", "ceiling_str", "exhausted", "databases", "kind", "unique",
    ]  # fmt: skip
    assert (body["kind"], body["unique"]) == ("ticket", "certainly")
    assert [each["offset"] for each in body["databases"]] == [1, 2]
    for database in body["databases"]:
        assert database.keys() == {"name", "offset", "status", "last", "last_str", "headroom", "headroom_str"}
        assert database["status"] == "up"
        assert database["last"] == max(each for each in tickets if each % 2 == database["offset"] % 2)
        assert database["last_str"] == str(database["last"])
        assert database["headroom_str"] == str(database["headroom"])
        assert abs(database["headroom"] - (2**63 - 1 - database["last"]) // 2) <= 1


def test_all_sequences_are_listed_by_name(ticket_server: TicketServer, sequence: str) -> None:
    listed = ticket_server.get("/sequence").json()["sequences"]
    names = [each["sequence"] for each in listed]
    assert names == sorted(names)
    assert {sequence, "Tickets64", "Tickets32", "photos", "accounts", "groups", "offline_tasks"} <= set(names)
    assert not any(name.startswith("_") for name in names)
    widths = {each["sequence"]: each["bits"] for each in listed}
    assert (widths["Tickets64"], widths["Tickets32"], widths[sequence]) == (64, 32, 64)


def test_the_list_comes_in_pages_and_can_be_searched(ticket_server: TicketServer, new_name: NewName) -> None:
    name = new_name()
    names = [f"{name}_{word}" for word in ("ab", "b", "ba", "c")]
    for each in names:
        assert ticket_server.put(f"/sequence/{each}").status == 201
    found, target = [], f"/sequence?limit=2&search={name.upper()}_"
    while target:
        reply = ticket_server.get(target)
        body = reply.json()
        found.append([each["sequence"] for each in body["sequences"]])
        target = reply.headers.get("link", "").partition(">")[0].lstrip("<")
        assert body["total"] == 4
        assert body["next"] == (found[-1][-1] if target else None)
    assert found == [names[:2], names[2:]]
    head = ticket_server.request("HEAD", f"/sequence?limit=2&search={name}_")
    assert (head.status, head.body) == (200, b"")
    assert f"after={names[1]}" in head.headers["link"]
    everything = ticket_server.get("/sequence").json()
    assert (everything["next"], everything["total"]) == (None, len(everything["sequences"]))


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "after=", "after=1", "search=a%27b", "after=a&after=b"]
)
def test_a_page_that_is_asked_for_wrongly_is_refused(ticket_server: TicketServer, query: str) -> None:
    assert query.partition("=")[0] in is_problem(ticket_server.get(f"/sequence?{query}"), 422)
    assert ticket_server.request("HEAD", f"/sequence?{query}").status == 422


@pytest.mark.parametrize("name", ["Tickets64", "Tickets32", "photos", "accounts", "groups", "offline_tasks"])
def test_the_first_object_types_are_there(ticket_server: TicketServer, name: str) -> None:
    assert ticket_server.ticket(name) != ticket_server.ticket(name)


# -- bump


@pytest.mark.parametrize("above", [10, 11, 123_456, "9007199254740993"])
def test_after_a_bump_every_ticket_is_larger(ticket_server: TicketServer, sequence: str, above: int | str) -> None:
    ticket_server.ticket(sequence)
    reply = ticket_server.post(f"/sequence/{sequence}/bump", json={"above": above})
    assert reply.status == 200, reply.text
    body = reply.json()
    assert body.keys() == {"sequence", "above", "above_str", "databases"}
    assert (body["sequence"], body["above"], body["above_str"]) == (sequence, int(above), str(above))
    assert [each["offset"] for each in body["databases"]] == [1, 2]
    tickets = [ticket_server.ticket(sequence) for _ in range(6)]
    tickets += ticket_server.get(f"/ticket/{sequence}?count=40").json()["ids"]
    tickets.append(ticket_server.get(f"/block/{sequence}?size=100").json()["first"])
    assert min(tickets) > int(above)
    assert {ticket % 2 for ticket in tickets[:6]} == {0, 1}
    assert max(tickets[:6]) < int(above) + 20


def test_a_bump_to_a_smaller_number_changes_nothing(ticket_server: TicketServer, sequence: str) -> None:
    assert ticket_server.post(f"/sequence/{sequence}/bump", json={"above": 1000}).status == 200
    first = [ticket_server.ticket(sequence) for _ in range(2)]
    for above in (0, 5, 1000):
        assert ticket_server.post(f"/sequence/{sequence}/bump", json={"above": above}).status == 200
    then = [ticket_server.ticket(sequence) for _ in range(2)]
    assert sorted(then) == [each + 2 for each in sorted(first)]


def test_a_bump_that_uses_up_most_of_a_sequence_wants_force(ticket_server: TicketServer, new_name: NewName) -> None:
    name = new_name()
    ceiling = 2**32 - 1
    assert ticket_server.put(f"/sequence/{name}", json={"bits": 32}).status == 201
    bump = f"/sequence/{name}/bump"
    for above in (ceiling, ceiling + 1, 2**65):
        is_problem(ticket_server.post(bump, json={"above": above, "force": True}), 409)
    above = ceiling - 1000
    assert "force" in is_problem(ticket_server.post(bump, json={"above": above}), 409)
    assert ticket_server.ticket(name) <= 2
    assert ticket_server.post(bump, json={"above": above, "force": True}).status == 200
    assert ticket_server.ticket(name) > above


def test_a_malformed_bump_is_refused(ticket_server: TicketServer, sequence: str) -> None:
    none: list[Any] = [{}, {"above": -1}, {"above": None}, {"above": 1.5}, {"above": "x"}, []]
    for body in [*none, {"above": 1, "by": 2}, {"above": 1, "force": "yes"}]:
        reply = ticket_server.post(f"/sequence/{sequence}/bump", json=body)
        assert reply.status == 422, (body, reply.text)
        is_problem(reply, 422)
    assert ticket_server.ticket(sequence) in (1, 2)


# -- the end of a sequence


def test_a_sequence_ends_with_a_410_and_the_others_go_on(ticket_server: TicketServer, new_name: NewName) -> None:
    name = new_name()
    start = 2**32 - 1 - 20
    assert ticket_server.put(f"/sequence/{name}", json={"bits": 32, "start": start}).status == 201
    tickets = []
    for _ in range(40):
        reply = ticket_server.get(f"/ticket/{name}")
        if reply.status == 410:
            break
        assert reply.status == 200, reply.text
        tickets.append(reply.json()["id"])
    is_problem(reply, 410)
    assert len(set(tickets)) == len(tickets)
    # the last id may be kept back where the column would give it again and again
    assert {*range(start, 2**32 - 2)} <= set(tickets) <= {*range(start, 2**32)}
    is_problem(ticket_server.get(f"/ticket/{name}?count=3"), 410)
    is_problem(ticket_server.get(f"/block/{name}?size=3"), 410)
    body = description(ticket_server, name)
    assert body["exhausted"] is True
    assert [each["headroom"] for each in body["databases"]] == [0, 0]
    assert ticket_server.ticket("photos") >= 1
