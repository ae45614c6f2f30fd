"""What the server promises of sequences of every kind: the same on the embedded pair and on MySQL or MariaDB."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from app.kinds.table import KINDS
from tests.contract.replies import conforms, description, is_problem
from tests.harness.ticketd import Reply, TicketServer

NewName = Callable[[], str]

OTHERS = [name for name in KINDS if name != "ticket"]
FROM_MEMORY = [name for name in OTHERS if not name.startswith("instagram")]
GIVEN: dict[str, dict[str, int]] = {
    "ticket": {"bits": 53},
    "instagram": {"epoch": 1400000000000, "shards": 2000},
    "instagram32": {"shards": 3},
    "snowflake": {"epoch": 1500000000000},
    "simpleflake": {"epoch": 1500000000000, "random_bits": 20},
}
LONG = "flake", "objectid", "uuid7", "ulid", "uuid4"
"""Their ids have more than 63 bits."""
NUMBERS = [name for name in OTHERS if name not in LONG]


def make(server: TicketServer, name: str, kind: str, **more: int) -> dict[str, Any]:
    reply = server.put(f"/sequence/{name}", json={"kind": kind, **GIVEN.get(kind, {}), **more})
    assert reply.status == 201, reply.text
    made: dict[str, Any] = reply.json()
    return made


def take(server: TicketServer, name: str, query: str = "", **headers: str) -> Reply:
    reply = server.get(f"/ticket/{name}{query}", headers=headers)
    assert reply.status == 200, reply.text
    assert reply.headers["cache-control"] == "no-store"
    return reply


@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_says_its_kind_and_parameters(ticket_server: TicketServer, new_name: NewName, kind: str) -> None:
    name = new_name()
    made, found = make(ticket_server, name, kind), description(ticket_server, name)
    listed = ticket_server.get(f"/sequence?search={name}").json()["sequences"]
    for each in (made, found, *listed):
        assert (each["sequence"], each["kind"]) == (name, kind)
        assert GIVEN.get(kind, {}).items() <= each.items()
        assert each["unique"] == KINDS[kind].unique
        assert ("odds" in each) is (each["unique"] == "probably")
        assert (each["ceiling"] is None) is (kind in LONG)
        assert each["ceiling_str"] == (None if each["ceiling"] is None else str(each["ceiling"]))
        assert (each["databases"] == []) is (kind in FROM_MEMORY)
    assert found["bits"] == (53 if kind == "ticket" else KINDS[kind].bits)
    assert len(listed) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_every_answer_is_as_described(ticket_server: TicketServer, new_name: NewName, kind: str) -> None:
    name = new_name()
    assert conforms(ticket_server, "PUT", f"/sequence/{name}", json={"kind": kind, **GIVEN.get(kind, {})}).status == 201
    assert conforms(ticket_server, "PUT", f"/sequence/{name}").status == 200
    for path in (f"/sequence/{name}", f"/sequence?search={name}", f"/ticket/{name}?count=3"):
        assert conforms(ticket_server, "GET", path).status == 200
    id_ = conforms(ticket_server, "GET", f"/ticket/{name}").json()["id"]
    assert conforms(ticket_server, "POST", f"/ticket/{name}").status == 200
    assert conforms(ticket_server, "GET", f"/ticket/{name}", headers={"Accept": "text/plain"}).status == 200
    said = conforms(ticket_server, "GET", f"/decode/{name}/{id_}").json()
    assert (said["sequence"], said["kind"], said["id_str"]) == (name, kind, str(id_))
    query = "".join(f"&{key}={value}" for key, value in GIVEN.get(kind, {}).items())
    query += "&increment=2" if kind == "ticket" else ""
    if kind != "instagram32":  # its epoch is when it was made
        elsewhere = conforms(ticket_server, "GET", f"/decode?kind={kind}&id={id_}{query}").json()
        assert elsewhere == said | {"sequence": None}
    for method, path, status in (
        ("GET", f"/block/{name}?size=2", 200 if kind == "ticket" else 409),
        ("POST", f"/sequence/{name}/bump", 200 if kind == "ticket" else 409),
        ("GET", f"/ticket/{name}?key=1&shard=1", 422),
        ("GET", f"/decode/{name}/not-an-id", 422),
        ("GET", f"/decode?kind={kind}", 422),
        ("GET", f"/decode/no_such_sequence/{id_}", 404),
    ):
        body = {"json": {"above": 5}} if method == "POST" else {}
        assert conforms(ticket_server, method, path, **body).status == status, path


@pytest.mark.parametrize("kind", OTHERS)
def test_ids_come_one_at_a_time_as_lists_and_as_text(ticket_server: TicketServer, new_name: NewName, kind: str) -> None:
    name = new_name()
    make(ticket_server, name, kind)
    one = take(ticket_server, name).json()
    several = take(ticket_server, name, "?count=5").json()
    assert one.keys() == {"sequence", "id", "id_str"}
    assert several.keys() == {"sequence", "count", "ids", "ids_str"}
    lines = take(ticket_server, name, "?count=4", Accept="text/plain").text.splitlines()
    type_ = str if kind in LONG else int
    assert {type(id_) for id_ in (one["id"], *several["ids"])} == {type_}
    assert one["id_str"] == str(one["id"])
    assert several["ids_str"] == [str(id_) for id_ in several["ids"]]
    ids = [one["id"], *several["ids"], *map(type_, lines)]
    assert len(set(ids)) == 10
    if KINDS[kind].ordered:
        assert several["ids"] == sorted(several["ids"])
    if kind in FROM_MEMORY and KINDS[kind].ordered:
        assert ids == sorted(ids)


@pytest.mark.parametrize("kind", [name for name in OTHERS if name != "uuid4"])
def test_an_id_says_when_it_was_made(ticket_server: TicketServer, new_name: NewName, kind: str) -> None:
    name = new_name()
    make(ticket_server, name, kind)
    before = time.time()
    id_ = take(ticket_server, name).json()["id"]
    said = ticket_server.get(f"/decode/{name}/{id_}").json()
    assert before - 2 <= said["time_ms"] / 1000 <= time.time() + 2


@pytest.mark.parametrize("kind", ["instagram", "instagram32"])
def test_a_key_or_a_number_names_the_shard(ticket_server: TicketServer, new_name: NewName, kind: str) -> None:
    name = new_name()
    shards = make(ticket_server, name, kind)["shards"]

    def shard(query: str) -> int:
        id_ = take(ticket_server, name, query).json()["id"]
        return int(ticket_server.get(f"/decode/{name}/{id_}").json()["shard"])

    assert shard("") == 0
    assert shard("?key=31341") == 31341 % shards
    assert shard(f"?key={2**63 - 1}") == (2**63 - 1) % shards
    assert shard(f"?shard={shards - 1}") == shards - 1
    for query in ("key=1&shard=1", f"shard={shards}", f"key={2**63}", "key=-1", "key=x", "shard=1&shard=1"):
        is_problem(ticket_server.get(f"/ticket/{name}?{query}"), 422)


@pytest.mark.parametrize("kind", ["ticket", *FROM_MEMORY])
def test_others_have_no_shards(ticket_server: TicketServer, new_name: NewName, kind: str) -> None:
    name = new_name()
    make(ticket_server, name, kind)
    for query in ("key=1", "shard=0"):
        assert "no shards" in is_problem(ticket_server.get(f"/ticket/{name}?{query}"), 422)


@pytest.mark.parametrize("kind", OTHERS)
def test_blocks_and_bumps_are_of_tickets_alone(ticket_server: TicketServer, new_name: NewName, kind: str) -> None:
    name = new_name()
    make(ticket_server, name, kind)
    assert kind in is_problem(ticket_server.get(f"/block/{name}?size=3"), 409)
    assert kind in is_problem(ticket_server.post(f"/sequence/{name}/bump", json={"above": 5}), 409)


def test_what_a_sequence_is_never_changes(ticket_server: TicketServer, new_name: NewName) -> None:
    name, plain = new_name(), new_name()
    make(ticket_server, name, "instagram")
    ticket_server.put(f"/sequence/{plain}")
    put = ticket_server.put
    same: list[dict[str, Any]] = [
        {}, {"kind": "instagram"}, {"shards": 2000}, {"kind": "instagram", "epoch": "1400000000000"},
    ]  # fmt: skip
    for body in same:
        assert put(f"/sequence/{name}", json=body).status == 200, body
    other: list[dict[str, Any]] = [{"kind": "ticket"}, {"kind": "uuid4"}, {"shards": 1999}, {"epoch": 1}]
    for body in other:
        is_problem(put(f"/sequence/{name}", json=body), 409)
    is_problem(put(f"/sequence/{plain}", json={"kind": "uuid4"}), 409)
    is_problem(put(f"/sequence/{name.upper()}", json={"kind": "uuid4"}), 409)
    assert put(f"/sequence/{plain}", json={"kind": "ticket"}).status == 200


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"kind": "sonyflake"}, "there are ticket, instagram"),
    ({"kind": ""}, "there are ticket, instagram"),
    ({"kind": 7}, "kind"),
    ({"kind": "instagram", "bits": 64}, "bits is no parameter of kind instagram"),
    ({"kind": "instagram", "start": 1}, "start is no parameter of kind instagram"),
    ({"kind": "uuid4", "epoch": 0}, "epoch is no parameter of kind uuid4"),
    ({"epoch": 0}, "epoch is no parameter of kind ticket"),
    ({"kind": "instagram", "shards": 8193}, "shards is a whole number from 1 to 8192"),
    ({"kind": "instagram", "shards": "7"}, "shards"),
    ({"kind": "simpleflake", "random_bits": 24}, "random_bits is a whole number from 1 to 23"),
    ({"kind": "instagram", "epoch": 4102444800000}, "lies in the future"),
    ({"kind": "instagram", "epoch": 0}, "less than a year"),
    ({"kind": "instagram", "workers": 5}, "workers"),
]


@pytest.mark.parametrize(("body", "why"), REFUSED, ids=str)
def test_what_cannot_be_made_is_refused_with_the_reason(
    ticket_server: TicketServer, new_name: NewName, body: dict[str, Any], why: str
) -> None:
    name = new_name()
    assert why in is_problem(ticket_server.put(f"/sequence/{name}", json=body), 422)
    is_problem(ticket_server.get(f"/sequence/{name}"), 404)
