"""An HTTP server without sockets: the real protocols, endpoint and front desk, with an issuer, an application and
transports that a test holds in its hand."""

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any, cast

from pydantic import SecretStr
from starlette.types import Receive, Scope, Send

from app.clients.connections import IDLE_SECONDS, Connections
from app.clients.denials import Denials
from app.clients.turns import Turns
from app.common.errors import TicketError
from app.http.access import Access
from app.http.tickets.connections import HTTPConnections
from app.http.tickets.endpoint import TicketEndpoint, Watcher
from app.http.tickets.protocol import TicketProtocol
from app.http.uvicorn_adapter import HTTPServer
from app.operations.metrics import Metrics
from app.tickets.desk.front_desk import FrontDesk
from app.tickets.desk.issuer import TicketIssuer
from app.tickets.lanes.lane import Lane
from app.tickets.requests.request import Ids, TicketRequest
from tests.fakes.virtual_time import settled


def request(
    target: str = "/ticket/photos", *headers: str, method: str = "GET", body: bytes = b"", version: str = "1.1"
) -> bytes:
    fields = ["host: tickets", *headers, *([f"content-length: {len(body)}"] if body else [])]
    return "\r\n".join([f"{method} {target} HTTP/{version}", *fields, "", ""]).encode() + body


def chunked(target: str, *chunks: bytes, headers: tuple[str, ...] = (), trailers: bytes = b"") -> bytes:
    """A POST whose body comes in these chunks."""
    head = request(target, "transfer-encoding: chunked", *headers, method="POST")
    return head + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n" + trailers + b"\r\n"


PHOTOS, ALBUMS, TEXT = request(), request("/ticket/albums"), request("/ticket/photos", "accept: text/plain")
POST, BLOCK = request(method="POST", body=b"{}"), request("/block/photos?size=3")
UPGRADE = request("/ticket/photos", "connection: upgrade", "upgrade: h2c")
LAST = request("/ticket/photos", "connection: close")
OTHER = request("/other")
REFUSED = request("/block/photos")


class FakeIssuer:
    """Issues odd numbers when a test says so. `on_issue`: called when a request has come."""

    increment = 2
    largest_block = 10_000

    draws_ahead = False
    drawn_ahead: Ids | None = None
    """What is given at once to who asks for single tickets."""

    def __init__(self) -> None:
        self.next = 1
        self.asked: list[str] = []
        self.again: list[str] = []
        self.waiting: list[TicketRequest] = []
        self.on_issue: Callable[[], object] = lambda: None

    def issue(self, request: TicketRequest) -> None:
        self.asked.append(request.sequence)
        self._wait(request)

    def ready(self, sequence: str, count: int, singly: bool) -> Ids | None:
        del sequence
        assert singly
        return None if self.drawn_ahead is None else self.drawn_ahead[:count]

    def ask_next(self, request: TicketRequest) -> None:
        self.again.append(request.sequence)
        self._wait(request)

    def _wait(self, request: TicketRequest) -> None:
        request.lane = cast(Lane, object())
        self.waiting.append(request)
        self.on_issue()

    def answer(self) -> None:
        """As a lane answers who has waited longest, unless it has gone; what is drawn for that is a gap."""
        request = self.waiting.pop(0)
        first, self.next = self.next, self.next + 2 * request.count
        if request.lane is not None:
            request.answer(range(first, self.next, 2))

    def fail_over(self) -> None:
        """As a lane lets go who has waited longest."""
        request = self.waiting.pop(0)
        if request.lane is not None:
            request.answer(None)

    def refuse(self, error: TicketError) -> None:
        """As the issuer refuses who has waited longest, whether it has gone or not."""
        request = self.waiting.pop(0)
        request.desk.refuse(request, error)


class Application:
    """The rest of HTTP. What it does is in the path; `/other` answers with all that it was given.

    `seen`: path and body of each request that was read to its end. `gate`: what `/wait` waits for. `largest`: the most
    of a body that came at once.
    """

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.seen: list[tuple[str, bytes]] = []
        self.begun: list[str] = []
        self.gone = 0
        self.chunks = 0
        self.largest = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        self.begun.append(path)
        if path.startswith("/early"):
            await self._respond(send, 413, b"too large")
        elif path == "/crash":
            raise RuntimeError("before the response")
        elif path == "/half":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"10")]})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
            raise RuntimeError("within the response")
        elif path == "/silent":
            return
        elif path == "/crash-after":
            await self._respond(send, 200, b"all is well")
            await self.gate.wait()
            raise RuntimeError("behind the response")
        elif path == "/parts":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for number in range(self.chunks or 3):
                await send({"type": "http.response.body", "body": b"part %d" % number, "more_body": True})
                await asyncio.sleep(0)
            await send({"type": "http.response.body"})
        elif path == "/hesitates":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
            await self.gate.wait()
            await send({"type": "http.response.body", "body": b"late"})
        else:
            await self._echo(scope, receive, send)

    async def _echo(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/wait":
            await self.gate.wait()
        body, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.gone += 1
                return
            self.largest = max(self.largest, len(message.get("body", b"")))
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.seen.append((scope["path"], bytes(body)))
        headers = [(key.decode("latin-1"), value.decode("latin-1")) for key, value in scope["headers"]]
        target = [scope["raw_path"].decode(), scope["query_string"].decode()]
        given = [scope["method"], *target, scope["http_version"], headers, body.decode("latin-1")]
        await self._respond(send, 200, json.dumps(given).encode())

    async def _respond(self, send: Send, status: int, body: bytes) -> None:
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class FakeTransport(asyncio.Transport):
    """Keeps what is written, and notes what else is asked of it; once closed it ends like a real one."""

    protocol: TicketProtocol

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.calls: list[str] = []
        self.reading = True
        self.ended = False
        self.on_write: Callable[[], object] = lambda: None

    def write(self, data: Any) -> None:
        assert not self.ended
        self.written += data
        self.calls.append("write")
        self.on_write()

    def is_closing(self) -> bool:
        return self.ended

    def close(self) -> None:
        self.lose(None, "close")

    def abort(self) -> None:
        self.lose(None, "abort")

    def lose(self, error: Exception | None, call: str) -> None:
        if not self.ended:
            self.ended = True
            self.calls.append(call)
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, error)

    def pause_reading(self) -> None:
        assert self.reading
        assert not self.ended
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        assert not self.ended
        self.reading = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("192.0.2.1", 4711), "sockname": ("192.0.2.2", 80)}.get(name, default)


class Client:
    """One connection, seen from the other end."""

    def __init__(self, protocol: TicketProtocol) -> None:
        self.protocol = protocol
        self.transport = FakeTransport()
        self.transport.protocol = protocol
        protocol.connection_made(self.transport)

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.protocol.data_received(piece)

    async def ask(self, *pieces: bytes) -> bytes:
        """What comes back without any ticket."""
        self.send(*pieces)
        await settled()
        return self.take()

    def take(self) -> bytes:
        written, self.transport.written = self.transport.written, b""
        return written


class WorkingTime:
    """The clock of a server whose connections look at it after each small piece of work. `piece`: how many seconds each
    piece takes."""

    def __init__(self) -> None:
        self.now = 0.0
        self.piece = 0.0

    def __call__(self) -> float:
        self.now += self.piece
        return self.now


class Bench:
    """A server's connections over an endpoint. `working_time`: by which their turns are measured."""

    def __init__(
        self, *tokens: str, watcher: Watcher | None = None, access_log: bool = False, most: int = 1_000
    ) -> None:
        self.issuer = FakeIssuer()
        self.metrics = Metrics()
        self.app = Application()
        self.desk = FrontDesk(cast(TicketIssuer, self.issuer), self.metrics)
        access = Access([SecretStr(token) for token in tokens], [])
        self.server = HTTPServer(
            self.app,
            grace=1.0,
            idle=IDLE_SECONDS,
            access_log=access_log,
        )
        endpoint = TicketEndpoint(self.desk, access, Denials(self.metrics), watcher)
        self.working_time = WorkingTime()
        self.shared = Connections(self.server, self.metrics, most, Turns(self.working_time))
        self.connections = HTTPConnections(endpoint, self.server, self.shared)

    def connect(self) -> Client:
        return Client(self.connections.make_protocol())

    def outcomes(self) -> dict[tuple[str, str], int]:
        return dict(self.metrics.requests)


def now() -> float:
    return asyncio.get_running_loop().time()


def undated(answers: bytes) -> bytes:
    return re.sub(rb"date: [^\r]+\r\n", b"", answers)


def statuses(answers: bytes) -> list[int]:
    """The status of every answer."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answers)]


def ids(answers: bytes) -> list[int]:
    """The ticket that was answered, or the first of several, of each answer that holds any."""
    return [int(id_) for id_ in re.findall(rb'(?:"id":|"first":|"ids":\[|\r\n\r\n)(\d+)', answers)]


def echoed(answer: bytes) -> Any:
    """What the application was given: method, path, query, version, headers, body."""
    return json.loads(answer.partition(b"\r\n\r\n")[2])
