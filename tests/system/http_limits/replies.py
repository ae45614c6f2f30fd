"""Replies of the server, taken apart."""

from tests.harness.ticketd import Reply

JSON = {"Content-Type": "application/json"}


def problem(reply: Reply, status: int) -> str:
    """The detail of a problem with this status, held against RFC 9457."""
    assert reply.status == status, (reply.status, reply.text)
    assert reply.headers["content-type"] == "application/problem+json"
    found = reply.json()
    assert found.keys() == {"type", "title", "status", "detail", "code"}
    assert found["status"] == status
    return str(found["detail"])


def answer(raw: bytes) -> tuple[int, dict[str, str], bytes]:
    """The first answer in what came back on a raw connection."""
    head, _, body = raw.partition(b"\r\n\r\n")
    status, *fields = head.decode("latin-1").split("\r\n")
    return int(status.split()[1]), dict(field.lower().split(": ", 1) for field in fields), body
