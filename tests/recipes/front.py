"""A front before a ticket server, as a load balancer is: it passes requests on, and can be busy or silent instead."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple, Self

from tests.harness.ticketd import TicketServer


class Seen(NamedTuple):
    """A request that came, and when (on the monotonic clock, in seconds)."""

    path: str
    authorization: str | None
    at: float


class Front:
    """Listens on a port of its own inside its `with`. Every id that the server gave through it is in `given`."""

    def __init__(self, server: TicketServer) -> None:
        self.server = server
        self.busy = 0
        """How many of the next requests are answered 503."""
        self.retry_after: int | None = 1
        """Seconds that such an answer tells; None: it has no Retry-After."""
        self.silent = False
        """Whether requests get no answer at all."""
        self.seen: list[Seen] = []
        self.given: list[str] = []
        self._ended = threading.Event()
        self._lock = threading.Lock()
        front = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                front.answer(self)

            def log_message(self, format: str, *arguments: object) -> None:
                """Nothing: the tests look at `seen`."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._http.shutdown()
        self._thread.join(30)
        self._http.server_close()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer one request: by the server, or as `busy` and `silent` say."""
        with self._lock:
            self.seen.append(Seen(request.path, request.headers["Authorization"], time.monotonic()))
            is_busy = self.busy > 0
            self.busy -= is_busy
        if self.silent:
            self._ended.wait(60)
            request.close_connection = True
            return
        if is_busy:
            headers = {"Content-Type": "application/problem+json"}
            if self.retry_after is not None:
                headers["Retry-After"] = str(self.retry_after)
            self._send(request, 503, headers, b'{"status": 503, "code": "no-database", "detail": "the front is busy"}')
            return
        passed_on = {name: request.headers[name] for name in ("Authorization", "Accept") if request.headers[name]}
        reply = self.server.get(request.path, headers=passed_on)
        if reply.status == 200:
            with self._lock:
                self.given += _ids(reply.headers["content-type"], reply.text)
        self._send(request, reply.status, {"Content-Type": reply.headers["content-type"]}, reply.body)

    @staticmethod
    def _send(request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)


def _ids(media_type: str, body: str) -> list[str]:
    """The ids of an answer to /ticket or /block."""
    if media_type.startswith("text/plain"):
        return body.split()
    answer = json.loads(body)
    if "first" in answer:
        return [str(answer["first"] + i * answer["step"]) for i in range(answer["size"])]
    return list(answer["ids_str"])
