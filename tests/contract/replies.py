"""What an answer of the server has to be."""

import re
from typing import Any

from jsonschema_rs import Draft202012Validator

from tests.harness.ticketd import Reply, TicketServer


def is_problem(reply: Reply, status: int) -> str:
    """Hold an answer against RFC 9457; returns its detail."""
    assert reply.status == status, (reply.status, reply.text)
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.headers["content-length"] == str(len(reply.body))
    problem = reply.json()
    assert problem.keys() == {"type", "title", "status", "detail", "code"}
    assert problem["status"] == status
    assert isinstance(problem["type"], str)
    assert problem["title"]
    detail: str = problem["detail"]
    assert detail
    for words in ("REPLACE INTO", "Traceback", "pymysql", "sqlite3", "SQLSTATE", "(1064", "error in your SQL"):
        assert words not in reply.text
    return detail


def description(server: TicketServer, sequence: str) -> dict[str, Any]:
    reply = server.get(f"/sequence/{sequence}")
    assert reply.status == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def conforms(server: TicketServer, method: str, path: str, **options: Any) -> Reply:
    """The answer, held against what /openapi.json says of such a request: its status, its media type, its schema."""
    document = server.get("/openapi.json").json()
    bare = path.partition("?")[0]
    (pattern,) = (each for each in document["paths"] if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", each), bare))
    reply = server.request(method, path, **options)
    described = document["paths"][pattern][method.lower()]["responses"]
    assert str(reply.status) in described, (path, reply.status, reply.text)
    content = described[str(reply.status)]["content"]
    media_type = reply.headers["content-type"].partition(";")[0]
    assert media_type in content, (path, media_type)
    schema = {**content[media_type].get("schema", {}), "components": document["components"]}
    answer = reply.text if media_type.startswith("text/") else reply.json()
    Draft202012Validator(schema).validate(answer)
    if isinstance(answer, dict) and "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        undescribed = answer.keys() - document["components"]["schemas"][name]["properties"].keys()
        assert not undescribed, (path, undescribed)
    return reply
