"""/openapi.json and /docs: true, and usable without the internet."""

import html
import json
import re
import shlex
from collections.abc import Iterator

import pytest

from tests.harness.kinds import KINDS
from tests.harness.ticketd import PATIENT, TicketServer

pytestmark = pytest.mark.any_engine

TOKEN = "the-docs-token"


@pytest.fixture(scope="module", params=["", TOKEN], ids=["free", "with tokens"])
def server(request: pytest.FixtureRequest) -> Iterator[TicketServer]:
    settings = {**PATIENT, **({"TICKETS_TOKENS": request.param} if request.param else {})}
    with TicketServer(settings=settings) as server:
        server.wait_ready()
        yield server


HEADERS = {"Authorization": f"Bearer {TOKEN}"}


def run_curl(server: TicketServer, line: str) -> int:
    """The status of what a curl line of the page asks for; it knows the options that stand there."""
    program, *rest = shlex.split(line.replace("Bearer TOKEN", f"Bearer {TOKEN}"))
    assert program == "curl"
    method, body, headers = "GET", None, {}
    while len(rest) > 1:
        option, value = rest.pop(0), rest.pop(0)
        if option == "-X":
            method = value
        elif option == "-H":
            name, _, headers[name] = value.partition(": ")
        else:
            assert option == "-d"
            body = value.encode()
    (url,) = rest
    assert url.startswith(server.url)
    return server.request(method, url.removeprefix(server.url), headers=headers, content=body).status


def test_every_example_of_the_page_runs(server: TicketServer) -> None:
    page = server.get("/docs", headers=HEADERS).text
    lines = [
        line for each in re.findall(r"<pre>(curl .*?)</pre>", page, re.S) for line in html.unescape(each).splitlines()
    ]
    assert len(lines) >= 18
    for line in lines:
        assert run_curl(server, line) in (200, 201), line


def test_the_page_names_everything_there_is(server: TicketServer) -> None:
    document = server.get("/openapi.json", headers=HEADERS).json()
    page = server.get("/docs", headers=HEADERS).text
    for path, operations in document["paths"].items():
        assert f'<span class="path">{html.escape(path)}</span>' in page
        for operation in operations.values():
            assert operation["summary"]
            assert operation["responses"]


def test_every_kind_has_an_example_that_makes_it(server: TicketServer) -> None:
    document = server.get("/openapi.json", headers=HEADERS).json()
    page = html.unescape(server.get("/docs", headers=HEADERS).text)
    examples = document["components"]["schemas"]["NewSequence"]["examples"]
    assert {each.get("kind", "ticket") for each in examples} == set(KINDS)
    for each in examples:
        assert json.dumps(each) in page
        name = f"of_kind_{each.get('kind', 'ticket')}"
        assert server.put(f"/sequence/{name}", json=each, headers=HEADERS).status == 201


def test_every_example_answer_is_as_its_schema_says(server: TicketServer) -> None:
    document = server.get("/openapi.json", headers=HEADERS).json()
    schemas = document["components"]["schemas"]
    checked = 0
    for operations in document["paths"].values():
        for operation in operations.values():
            for answer in operation["responses"].values():
                for content in answer.get("content", {}).values():
                    reference = content.get("schema", {}).get("$ref")
                    if reference and "example" in content:
                        expected = schemas[reference.rpartition("/")[2]]
                        assert set(expected["required"]) <= content["example"].keys() <= expected["properties"].keys()
                        checked += 1
    assert checked > 20


def test_real_answers_have_the_fields_that_are_described(server: TicketServer) -> None:
    document = server.get("/openapi.json", headers=HEADERS).json()
    schemas = document["components"]["schemas"]
    for path, model in [
        ("/ticket/photos", "Ticket"), ("/ticket/photos?count=2", "Tickets"), ("/block/photos?size=2", "Block"),
        ("/sequence", "Sequences"), ("/sequence/photos", "Sequence"), ("/healthz", "Health"),
        ("/decode/photos/7", "Decoded"), ("/decode?kind=instagram&id=7", "Decoded"),
        ("/ticket/nothing", "ProblemDetails"),
    ]:  # fmt: skip
        given = server.get(path, headers=HEADERS).json().keys()
        assert set(schemas[model]["required"]) <= given <= schemas[model]["properties"].keys(), path
