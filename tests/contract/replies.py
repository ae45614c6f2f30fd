"""What an answer of the server has to be."""

from typing import Any

from tests.harness.ticketd import Reply, TicketServer


def is_problem(reply: Reply, status: int) -> str:
    """Hold an answer against RFC 9457; returns its detail."""
    assert reply.status == status, (reply.status, reply.text)
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.headers["content-length"] == str(len(reply.body))
    problem = reply.json()
    assert problem.keys() >= {"type", "title", "status", "detail"}
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
