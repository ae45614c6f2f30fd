"""Whole responses as HTTP/1.1 sends them, without any framework."""

import time
from email.utils import formatdate

from app.http.problems import Problem

JSON = b"content-type: application/json\r\ncache-control: no-store\r\n"
TEXT = b"content-type: text/plain; charset=utf-8\r\ncache-control: no-store\r\n"


class Dated:
    """The beginning of a response that says 200: status, date and the `fields` it was made with."""

    __slots__ = ("_fields", "_until", "head")

    def __init__(self, fields: bytes) -> None:
        self._fields = fields
        self._until = 0.0
        self.head = b""

    def now(self) -> bytes:
        """The same head with the date of this second."""
        now = time.time()
        if not 0 <= self._until - now <= 1:  # or the clock was set
            self._until = int(now) + 1
            self.head = b"HTTP/1.1 200 OK\r\ndate: %b\r\n%b" % (formatdate(now, usegmt=True).encode(), self._fields)
        return self.head


_JSON, _TEXT = Dated(JSON), Dated(TEXT)


def ok(body: bytes, *, as_text: bool, keep_alive: bool) -> bytes:
    """A response of 200 with this body."""
    head = (_TEXT if as_text else _JSON).now()
    if keep_alive:
        return b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body)
    return b"%bcontent-length: %d\r\nconnection: close\r\n\r\n%b" % (head, len(body), body)


def problem_response(problem: Problem, *, keep_alive: bool, head: bool = False) -> bytes:
    """A response that carries a problem; to HEAD without its body."""
    body = problem.body
    fields = problem.all_headers | {"date": formatdate(usegmt=True), "content-length": str(len(body))}
    if not keep_alive:
        fields["connection"] = "close"
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    start = f"HTTP/1.1 {problem.status} {problem.title}\r\n{lines}\r\n".encode("latin-1")
    return start if head else start + body
