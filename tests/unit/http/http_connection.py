"""A connection to the HTTP server without a socket: real protocols and endpoint, an issuer and a transport that a test
holds in its hand."""

import asyncio
import re
from collections.abc import Callable
from typing import Any, cast

import pytest
import uvicorn
from pydantic import SecretStr
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from app.http.access import Access
from app.http.connections import LimitedProtocol
from app.http.express import ExpressOrders, ExpressProtocol
from app.http.ticket_endpoint import TicketEndpoint
from app.operations.metrics import Metrics
from app.tickets.issuer import FirstTry, TicketIssuer
from app.tickets.lane import Lane
from app.tickets.waiters import Waiter, fail_over
from tests.fakes.virtual_time import settled

SILENCE = 75


def request(target: str = "/ticket/photos", *headers: str, method: str = "GET", body: bytes = b"") -> bytes:
    fields = ["host: tickets", *headers, *([f"content-length: {len(body)}"] if body else [])]
    return "\r\n".join([f"{method} {target} HTTP/1.1", *fields, "", ""]).encode() + body


PHOTOS, ALBUMS, TEXT = request(), request("/ticket/albums"), request("/ticket/photos", "accept: text/plain")
POST, BLOCK = request(method="POST", body=b"{}"), request("/block/photos?size=3")
UPGRADE = request("/ticket/photos", "connection: upgrade", "upgrade: h2c")


class FakeIssuer:
    """Issues odd numbers: on the ordinary way by itself, on the express way when `answer` is called."""

    increment = 2
    largest_block = 10_000
    first_attempt = 0.5

    def __init__(self) -> None:
        self.next = 1
        self.lane = cast(Lane, object())
        self.issued: list[tuple[str, FirstTry | None]] = []
        self.asked: list[str] = []
        self.waiting: list[Waiter] = []
        self.has_lanes = True
        self.delay: Callable[[], float] = lambda: 0.0
        self.on_ask: Callable[[], object] = lambda: None

    def draw(self, count: int = 1) -> range:
        first, self.next = self.next, self.next + 2 * count
        return range(first, self.next, 2)

    async def issue(self, name: str, count: int, *, whole: bool = False, first: FirstTry | None = None) -> range:
        self.issued.append((name, first))
        await asyncio.sleep(self.delay())
        return self.draw(count)

    def knows(self, name: str) -> bool:
        return name in {"photos", "albums"}

    def ask_first(self, name: str, waiter: Waiter) -> Lane | None:
        if not self.has_lanes:
            return None
        self.asked.append(name)
        self.waiting.append(waiter)
        self.on_ask()
        return self.lane

    def answer(self, *, empty: bool = False) -> None:
        """As a lane answers who has waited longest."""
        waiter = self.waiting.pop(0)
        if empty:
            fail_over(waiter)
        elif not waiter.is_gone():
            waiter.answer(self.draw())


class FakeTransport(asyncio.Transport):
    """Keeps what is written, and notes what else is asked of it; once closed it ends like a real one."""

    protocol: LimitedProtocol

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.calls: list[str] = []
        self.reading = True
        self.ended = False

    def write(self, data: Any) -> None:
        assert not self.ended
        self.written += data
        self.calls.append("write")

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
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Client:
    """One connection, seen from the other end."""

    def __init__(self, protocol: LimitedProtocol) -> None:
        self.protocol = protocol
        self.transport = FakeTransport()
        self.transport.protocol = protocol
        protocol.connection_made(self.transport)

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.protocol.data_received(piece)

    async def ask(self, *pieces: bytes) -> bytes:
        """What comes back without any lane."""
        self.send(*pieces)
        await settled()
        return self.take()

    def take(self) -> bytes:
        written, self.transport.written = self.transport.written, b""
        return written


class Bench:
    """A server's protocols over an endpoint, with lanes that the test answers for."""

    def __init__(self, *tokens: str) -> None:
        self.issuer = FakeIssuer()
        self.metrics = Metrics()
        access = Access([SecretStr(token) for token in tokens], [])
        self.endpoint = TicketEndpoint(echo, cast(TicketIssuer, self.issuer), access, self.metrics)
        self.orders = ExpressOrders(self.endpoint)
        self.state = ServerState()
        self.config = uvicorn.Config(
            self.endpoint, ws="none", lifespan="off", log_config=None, access_log=False, server_header=False,
            proxy_headers=False, timeout_keep_alive=SILENCE,
        )  # fmt: skip

    def connect(self, *, plain: bool = False) -> Client:
        given: dict[str, Any] = {"config": self.config, "server_state": self.state, "app_state": {}}
        return Client(LimitedProtocol(**given) if plain else ExpressProtocol(orders=self.orders, **given))

    async def connect_known(self, *known: bytes) -> Client:
        """A connection, once these requests have been understood."""
        for data in known:
            await self.connect().ask(data)
        self.issuer.issued.clear()
        return self.connect()


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """The rest of HTTP: answers with the path and the body that came."""
    body, more = scope["path"].encode() + b" ", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    head = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 404, "headers": head})
    await send({"type": "http.response.body", "body": body})


def now() -> float:
    return asyncio.get_running_loop().time()


def kinds(answers: bytes) -> bytes:
    """The answers without their numbers, but for the status."""
    return re.sub(rb"(?<!HTTP/1.1 )\b\d+", b"#", answers)


def ids(answers: bytes) -> list[int]:
    """The ticket that was answered, or the first of several, of each answer that holds any."""
    return [int(id_) for id_ in re.findall(rb'(?:"id":|"first":|"ids":\[|\r\n\r\n)(\d+)', answers)]


def with_id(answer: bytes, old: int, new: int) -> bytes:
    """The same answer with another id, and the length that follows."""
    head, _, body = answer.partition(b"\r\n\r\n")
    changed = body.replace(b"%d" % old, b"%d" % new)
    return head.replace(b"length: %d" % len(body), b"length: %d" % len(changed)) + b"\r\n\r\n" + changed


both_ways = pytest.mark.parametrize("empty", [False, True], ids=["served", "not served"])
