"""The Redis protocol without sockets: real connections, commands and front desk, with an issuer and transports that a
test holds in its hand."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from pydantic import SecretStr

from app.clients.connections import ClientConnection, Connections
from app.clients.denials import Denials
from app.clients.tokens import Tokens
from app.clients.turns import Turns
from app.operations.metrics import Metrics
from app.redis.connection import RedisConnection
from app.redis.door import RedisDoor
from app.redis.requests import Watcher
from app.tickets.desk.front_desk import FrontDesk
from app.tickets.desk.issuer import TicketIssuer
from app.tickets.sequences.catalog import Catalog
from tests.fakes.virtual_time import settled
from tests.unit.http.http_bench import FakeIssuer

TIMEOUT = 2.0
NO_TOKEN = b"-NOAUTH Authentication required.\r\n"
WRONG = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"


def command(*words: str | bytes) -> bytes:
    """As clients send it."""
    parts = [word.encode() if isinstance(word, str) else word for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


INCR = command("INCR", "photos")
OTHER = command("INCR", "albums")
PING = command("PING")


class FakeTransport(asyncio.Transport):
    """Keeps what is written, and notes what else is asked of it; once closed it ends like a real one."""

    protocol: RedisConnection

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.writes = 0
        self.calls: list[str] = []
        self.reading = True
        self.ended = False
        self.on_write: Callable[[], object] = lambda: None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 4321) if name == "peername" else default

    def write(self, data: Any) -> None:
        assert not self.ended
        assert data
        self.written += data
        self.writes += 1
        self.on_write()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.calls.append("eof")

    def is_closing(self) -> bool:
        return self.ended

    def close(self) -> None:
        self.lose("close")

    def abort(self) -> None:
        self.lose("abort")

    def lose(self, call: str) -> None:
        if not self.ended:
            self.ended = True
            self.calls.append(call)
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True


class Client:
    """One client connection."""

    def __init__(self, protocol: RedisConnection) -> None:
        self.protocol = protocol
        self.transport = FakeTransport()
        self.transport.protocol = protocol
        protocol.connection_made(self.transport)

    def send(self, *pieces: bytes) -> None:
        """Each piece is a read of its own."""
        for piece in pieces:
            if not self.transport.ended:
                self.protocol.data_received(piece)

    async def ask(self, *pieces: bytes) -> bytes:
        """What comes back without any ticket."""
        self.send(*pieces)
        await settled()
        return self.take()

    def take(self) -> bytes:
        written, self.transport.written = self.transport.written, b""
        return written


class Ending:
    """Notes the connections that end with the server."""

    def __init__(self) -> None:
        self.connections: set[ClientConnection] = set()

    def opened(self, connection: ClientConnection) -> None:
        self.connections.add(connection)

    def closed(self, connection: ClientConnection) -> None:
        self.connections.discard(connection)


class WorkClock:
    """Time that passes only where somebody looks at it: `seconds` for each look, as if every step took that long."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.now = 0.0

    def __call__(self) -> float:
        self.now += self.seconds
        return self.now


class Bench:
    """A door over an issuer. `catalog`: for EXISTS. `clock`: what a turn of the event loop is measured by; it stands
    still unless a test says otherwise, so that every turn has time for everything."""

    def __init__(
        self,
        *tokens: str,
        most: int = 1_000,
        watcher: Watcher | None = None,
        catalog: Catalog | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.issuer = FakeIssuer()
        self.issuer.draws_ahead = True
        self.metrics = Metrics()
        self.desk = FrontDesk(cast(TicketIssuer, self.issuer), self.metrics)
        self.tokens = Tokens([SecretStr(token) for token in tokens], [])
        self.ending = Ending()
        self.connections = Connections(self.ending, self.metrics, most, Turns(clock or WorkClock()))
        self.door = RedisDoor(
            self.desk,
            cast(Catalog, catalog),
            self.tokens,
            Denials(self.metrics),
            self.connections,
            timeout=TIMEOUT,
            watcher=watcher,
        )

    def connect(self) -> Client:
        return Client(self.door.make_connection())

    def answers_at_once(self) -> None:
        """From now on every request is answered in the same turn of the event loop."""
        self.issuer.on_issue = self.issuer.answer

    def outcomes(self) -> dict[tuple[str, str], int]:
        return dict(self.metrics.requests)
