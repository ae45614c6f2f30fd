"""What one client or forty send to the Redis port holds up nobody else, and takes little memory."""

import threading
from collections.abc import Collection, Iterator

import pytest
import redis

from tests.harness.hostile_stream import cost_of
from tests.harness.processes import free_port
from tests.harness.ticketd import PATIENT, TicketServer

pytestmark = pytest.mark.any_engine

LONGER_SECONDS = 0.1
"""How much longer /livez may take than on the idle server, the 99th of a hundred."""
GROWTH = 64 * 2**20
TRIES = 3
"""How often it is measured where it took longer: the machine itself may have been busy."""
TOKEN = "a-token-of-16-chars"
BLOB = 2**20
DEADLINE = 120


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def repeated(data: bytes) -> bytes:
    return data * (BLOB // len(data) + 1)


def numbered(*words: bytes, count: int) -> bytes:
    """This number of commands; every {} in their words becomes another number."""
    return b"".join(command(*(word.replace(b"{}", b"%d" % number) for word in words)) for number in range(count))


AUTH = command(b"AUTH", TOKEN.encode())
INCR = command(b"INCR", b"photos")
GLOBS = [b"*a?[b-%d]*" % number for number in range(15)]
OF_A_STRANGER = {
    "empty lines": b"\n" * BLOB,
    "empty arrays": repeated(b"*0\r\n"),
    "pings": repeated(command(b"PING")),
    "denied": repeated(INCR),
    "hello": repeated(command(b"HELLO", b"3")),
    "unknown": repeated(command(b"NOSUCH", b"\x01" * 90)),
    "typed": repeated(b"PING " + b"a " * 8_000 + b"\n"),
}
WITH_A_TOKEN = {
    "one ticket": repeated(INCR),
    "two sequences": repeated(INCR + command(b"INCR", b"accounts")),
    "unknown sequences": numbered(b"INCR", b"nosuch{}", count=40_000),
    "lists": repeated(command(b"TICKET.TAKE", b"photos", b"COUNT", b"1000")),
    "escapes": repeated(b'ECHO "' + b"\\x41" * 1_000 + b'"\n'),
    "other escapes": repeated(b'ECHO "' + b"\\a" * 2_000 + b'"\n'),
    "words": repeated(b"ECHO " + b"a " * 2_000 + b"\n"),
    "quoted words": repeated(b"ECHO " + b'"" ' * 1_300 + b"\n"),
    "spaces": repeated(b"PING" + b" " * 4_000 + b"\n"),
    "a long line": repeated(b'ECHO "' + b"\\x41" * 15_000 + b'"\n'),
    "globs": numbered(b"CONFIG", b"GET", b"*{}x?[a-f]*y*z*", b"*?*{}*?*", count=20_000),
    "arguments": repeated(command(b"ECHO", *[b"x"] * 4_000)),
    "exists": b"".join(command(b"EXISTS", *(b"no%dx%d" % (each, name) for name in range(256))) for each in range(500)),
    "exists again": repeated(command(b"EXISTS", *(b"no%d" % name for name in range(250)))),
    "described": repeated(command(b"COMMAND")),
    "described by name": repeated(command(b"COMMAND", b"INFO", *[b"incr"] * 4_000)),
    "multi": repeated(command(b"MULTI") + INCR * 1_000 + command(b"EXEC")),
    "an exhausted sequence": repeated(command(b"INCR", b"ended")),
    "random ids": repeated(command(b"INCR", b"keys")),
    "lists of random ids": repeated(command(b"TICKET.TAKE", b"keys", b"COUNT", b"1000")),
    "too many at once": repeated(command(b"INCR", b"tiny")),
    "echo": repeated(command(b"ECHO", b"x" * 65_000)),
}


@pytest.fixture(scope="module")
def attacked() -> Iterator[tuple[TicketServer, int]]:
    """A server that wants tokens, and its Redis port."""
    port = free_port()
    settings = PATIENT | {"TICKETS_REDIS_PORT": port, "TICKETS_TOKENS": TOKEN, "TICKETS_RESERVE_SECONDS": 2}
    with TicketServer(settings=settings) as server:
        server.wait_ready()
        made = {"keys": {"kind": "uuid4"}, "tiny": {"kind": "instagram32"}, "ended": {"bits": 32, "start": 2**32 - 9}}
        for sequence, parameters in made.items():
            reply = server.put(f"/sequence/{sequence}", json=parameters, headers={"Authorization": f"Bearer {TOKEN}"})
            assert reply.status == 201, reply.text
        yield server, port


def check(attacked: tuple[TicketServer, int], data: bytes, opening: bytes, connections: int, is_deaf: bool) -> None:
    server, port = attacked
    watchdog = threading.Timer(DEADLINE, server.kill)
    watchdog.start()
    try:
        for _ in range(TRIES):
            cost = cost_of(server, port, data, opening=opening, connections=connections, is_deaf=is_deaf)
            assert cost.growth < GROWTH, cost
            if cost.busy - cost.idle < LONGER_SECONDS:
                break
    finally:
        watchdog.cancel()
    assert cost.busy - cost.idle < LONGER_SECONDS, cost
    assert "Traceback" not in server.log_text()


def several(names: Collection[str], always: Collection[str]) -> list[object]:
    """The names as parameters, of which `make test` has those that it is to have always."""
    assert set(always) <= set(names)
    return [name if name in always else pytest.param(name, marks=pytest.mark.long) for name in names]


@pytest.mark.parametrize("name", several(OF_A_STRANGER, ["empty lines", "hello"]))
@pytest.mark.parametrize("connections", [1, pytest.param(40, marks=pytest.mark.long)])
def test_strangers_hold_up_nobody(attacked: tuple[TicketServer, int], name: str, connections: int) -> None:
    check(attacked, OF_A_STRANGER[name], b"", connections, False)


@pytest.mark.parametrize(
    "name",
    several(
        WITH_A_TOKEN, ["one ticket", "escapes", "globs", "arguments", "exists", "exists again", "described", "multi"]
    ),
)
@pytest.mark.parametrize("connections", [pytest.param(1, marks=pytest.mark.long), 40])
def test_clients_with_a_token_hold_up_nobody(attacked: tuple[TicketServer, int], name: str, connections: int) -> None:
    check(attacked, WITH_A_TOKEN[name], AUTH, connections, False)


@pytest.mark.parametrize("name", several(["one ticket", "lists", "echo", "multi", "described by name"], ["echo"]))
def test_forty_clients_that_do_not_read_hold_up_nobody(attacked: tuple[TicketServer, int], name: str) -> None:
    check(attacked, WITH_A_TOKEN[name], AUTH, 40, True)


@pytest.mark.parametrize("reserve", [0, 2])
def test_a_pipeline_gets_the_tickets_of_a_database_in_the_order_of_its_commands(reserve: int) -> None:
    port = free_port()
    settings = PATIENT | {"TICKETS_REDIS_PORT": port, "TICKETS_RESERVE_SECONDS": reserve}
    with TicketServer(settings=settings) as server, redis.Redis(port=port, socket_timeout=15) as client:
        server.wait_ready()
        take = ("TICKET.TAKE", "photos", "COUNT", "2")
        highest = [0, 0]
        for number in range(200):
            pipeline = client.pipeline(transaction=bool(number % 2))
            for words in (("INCR", "photos"), take, ("INCR", "photos"), take, take, ("INCR", "photos")):
                pipeline.execute_command(*words)
            for answer in pipeline.execute():
                for ticket in map(int, answer if isinstance(answer, list) else [answer]):
                    assert ticket > highest[ticket % 2], (number, ticket, highest)
                    highest[ticket % 2] = ticket
