"""Bad input and bad clients: a clear error or a closed connection, and service for everybody else."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from tests.harness.ticketd import PATIENT, Reply, TicketServer

pytestmark = pytest.mark.any_engine

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def server() -> Iterator[TicketServer]:
    with TicketServer(settings=PATIENT) as server:
        server.wait_ready()
        yield server


@pytest.fixture(autouse=True)
def _serves_afterwards(server: TicketServer) -> Iterator[None]:
    yield
    server.ticket("photos")
    assert "Traceback" not in server.log_text()


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


# -- counts, sizes, names

BAD_NUMBERS = [
    "1e3",
    "0x10",
    "%EF%BC%91%EF%BC%90",
    "%D9%A1",
    "%205",
    "5%20",
    "+5",
    "%2B5",
    "-1",
    "1_000",
    "1" + "0" * 30,
    "0",
    "00",
    "01",
    "",
    "1.0",
    "1,0",
    "null",
    "true",
    "NaN",
    "%00",
    "1%00",
    "5%0A",
    "1001",
    "10001",
    "99999999999999999999",
    "9" * 6000,
]


@pytest.mark.parametrize("number", BAD_NUMBERS, ids=lambda number: number[:12] or "empty")
def test_a_number_that_is_none_is_refused(server: TicketServer, number: str) -> None:
    assert "from 1 to 1000" in problem(server.get(f"/ticket/photos?count={number}"), 422)
    if number != "1001":
        assert "from 1 to 10000" in problem(server.post(f"/block/photos?size={number}"), 422)


@pytest.mark.parametrize(
    "query", ["count=1&count=1", "count=1&count=", "count", "x=1&count=0", "&".join(["a=1"] * 40), "%63ount=0"]
)
def test_a_query_that_is_unclear_is_refused(server: TicketServer, query: str) -> None:
    problem(server.get(f"/ticket/photos?{query}"), 422)


@pytest.mark.parametrize("query", ["count=2", "_x=1&count=2", "count=2&", "%63ount=%32", "count=2#7"])
def test_a_query_that_is_clear_is_served(server: TicketServer, query: str) -> None:
    assert len(server.get(f"/ticket/photos?{query}").json()["ids"]) == 2


def test_a_block_wants_its_size(server: TicketServer) -> None:
    assert "size is required" in problem(server.get("/block/photos"), 422)
    assert "size is required" in problem(server.get("/block/photos?count=3"), 422)


BAD_NAMES = [
    "",
    "%20",
    "a;b",
    "a%60b",
    "a%27b",
    "..%2Fx",
    "%2E%2E",
    "..%2F..%2Fetc%2Fpasswd",
    "a" * 65,
    "information_schema.tables",
    "caf%C3%A9",
    "%EF%BC%A1",
    "photos%00",
    "%00",
    "photos%20",
    "photos%0A",
    "_marks",
    "1a",
    "a-b",
    "photos/",
    "photos%2F",
    "%FF%FE",
    "%ED%A0%80",
    "a%25b",
    "photos;x=1",
    "%",
    "%zz",
]


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: name[:20] or "empty")
def test_a_name_that_is_none_is_refused(server: TicketServer, name: str) -> None:
    for target in (f"/ticket/{name}", f"/block/{name}?size=1", f"/sequence/{name}"):
        raw = server.raw(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode("latin-1"))
        status, headers, body = answer(raw)
        allowed = {404, 422} | ({200} if target == "/sequence/" else set())
        assert status in allowed, raw
        assert headers["content-type"] == "application/problem+json"
        assert json.loads(body)["status"] == status


def test_a_name_may_be_percent_encoded(server: TicketServer) -> None:
    assert server.get("/ticket/%70hotos").json()["sequence"] == "photos"
    assert server.get("/sequence/photo%73").json()["sequence"] == "photos"
    problem(server.get("/ticket/Photos"), 404)


@pytest.mark.parametrize(
    "path",
    [
        "//ticket/photos",
        "/ticket/../ticket/photos",
        "/./ticket/photos",
        "/TICKET/photos",
        "/ticket",
        "/ticket\\photos",
        "/docs/",
        "/static/page.css",
        "/..%2f..%2fetc/passwd",
        "*",
        "/healthz/x",
        "/%00",
    ],
)
def test_tricks_with_the_path_lead_nowhere(server: TicketServer, path: str) -> None:
    status, headers, _ = answer(server.raw(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()))
    assert status in (400, 404, 422)
    assert headers["content-type"] == "application/problem+json"


# -- methods

METHODS = ["HEAD", "DELETE", "OPTIONS", "PATCH", "PUT", "TRACE", "PROPFIND"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("path", ["/ticket/photos", "/block/photos?size=3"])
def test_another_method_draws_nothing(server: TicketServer, method: str, path: str) -> None:
    before = server.get("/sequence/photos").json()["databases"]
    reply = server.request(method, path)
    assert reply.status == 405
    assert reply.headers["allow"] == "GET, POST"
    assert reply.headers["cache-control"] == "no-store"
    assert (reply.body == b"") is (method == "HEAD")
    assert server.get("/sequence/photos").json()["databases"] == before


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/sequence", "GET, HEAD"),
        ("/sequence/photos", "GET, HEAD, PUT"),
        ("/sequence/photos/bump", "POST"),
        ("/healthz", "GET, HEAD"),
        ("/", "GET, HEAD"),
        ("/metrics", "GET, HEAD"),
    ],
)
def test_a_405_names_every_method_that_is_allowed(server: TicketServer, path: str, allowed: str) -> None:
    reply = server.request("DELETE", path)
    problem(reply, 405)
    assert reply.headers["allow"] == allowed
    assert server.request("OPTIONS", path).status == 405


@pytest.mark.parametrize(
    "path",
    ["/livez", "/readyz", "/healthz", "/metrics", "/sequence", "/sequence/photos", "/", "/docs", "/openapi.json"],
)
def test_head_answers_as_get_without_a_body(server: TicketServer, path: str) -> None:
    get, head = server.get(path), server.request("HEAD", path)
    assert (head.status, head.body) == (get.status, b"")
    assert head.headers["content-type"] == get.headers["content-type"]


# -- Accept


@pytest.mark.parametrize(
    ("accept", "text"),
    [
        ("text/plain", True),
        ("Text/Plain", True),
        ("text/plain; charset=utf-8", True),
        ("text/plain, */*", True),
        ("text/plain, application/json", True),
        ("text/plain;q=0.9, application/json;q=0.5", True),
        ("application/json;q=0.1, text/plain", True),
        ("text/plain,text/html;q=0.3", True),
        ("*/*", False),
        ("", False),
        ("application/json", False),
        ("application/json, text/plain, */*", False),
        ("text/plain;q=0", False),
        ("text/plain;q=0.5, application/json", False),
        ("text/plain;q=0.5, */*", False),
        ("text/html,application/xhtml+xml,*/*;q=0.8", False),
        ("text/plain;q=x", False),
        ("text/plainest", False),
        (";;;,,,q=1", False),
        ("text/plain;q=0.5," + "a/b," * 2000, True),
    ],
)
def test_text_is_for_those_who_want_it(server: TicketServer, accept: str, text: bool) -> None:
    reply = server.get("/ticket/photos?count=2", headers={"Accept": accept})
    assert reply.status == 200
    if text:
        assert reply.headers["content-type"] == "text/plain; charset=utf-8"
        assert len([int(line) for line in reply.text.splitlines()]) == 2
        assert reply.text.endswith("\n")
    else:
        assert reply.headers["content-type"] == "application/json"
        assert reply.json()["count"] == 2
    assert reply.headers["cache-control"] == "no-store"


# -- bodies


def test_put_takes_no_body_an_empty_one_and_an_object(server: TicketServer, new_name: Callable[[], str]) -> None:
    assert server.put(f"/sequence/{new_name()}").status == 201
    assert server.put(f"/sequence/{new_name()}", content=b"", headers=JSON).status == 201
    assert server.put(f"/sequence/{new_name()}", json={}).status == 201
    assert server.put(f"/sequence/{new_name()}", json={"bits": 32}).json()["bits"] == 32
    assert server.put(f"/sequence/{new_name()}", json={"start": "1000"}).status == 201


BAD_BODIES: list[Any] = [
    b"{",
    b"[]",
    b"1",
    b'"x"',
    b"{'bits': 64}",
    b"\xff\xfe",
    b"\x00",
    b'{"bits": 64}}',
    b"{} {}",
    b'{"bits": 16}',
    b'{"bits": "64"}',
    b'{"bits": 64.5}',
    b'{"bits": true}',
    b'{"bits": NaN}',
    b'{"start": 0}',
    b'{"start": -1}',
    b'{"start": "-1"}',
    b'{"start": "1e3"}',
    b'{"start": " 5"}',
    b'{"start": 1.5}',
    b'{"start": []}',
    b'{"start": "\xef\xbc\x91"}',
    b'{"start": true}',
    b'{"begin": 1}',
    b'{"\\ud800": 1}',
    b'{"' + b"x" * 60_000 + b'": 1}',
    b"[" * 60_000,
    b'{"a":' * 10_000,
    b'{"start": ' + b"9" * 60_000 + b"}",
    b'{"start": 1e400}',
    b'{"start": Infinity}',
]


@pytest.mark.parametrize("body", BAD_BODIES, ids=lambda body: repr(body[:24]))
def test_a_body_that_is_none_is_refused(server: TicketServer, new_name: Callable[[], str], body: bytes) -> None:
    name = new_name()
    reply = server.put(f"/sequence/{name}", content=body, headers=JSON)
    assert len(problem(reply, 422)) < 1000
    problem(server.get(f"/sequence/{name}"), 404)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"{}",
        b'{"above": null}',
        b'{"above": -1}',
        b'{"above": "x"}',
        b'{"above": 1.5}',
        b'{"above": 1, "force": "yes"}',
        b'{"above": 1, "more": 1}',
    ],
)
def test_a_bump_that_is_none_is_refused(server: TicketServer, body: bytes) -> None:
    problem(server.post("/sequence/photos/bump", content=body, headers=JSON), 422)


@pytest.mark.parametrize("above", ["1" + "0" * 30, '"1' + "0" * 30 + '"', str(2**63 - 1), str(2**64)])
def test_a_bump_beyond_the_end_is_a_conflict(server: TicketServer, above: str) -> None:
    body = f'{{"above": {above}, "force": true}}'.encode()
    problem(server.post("/sequence/photos/bump", content=body, headers=JSON), 409)


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml", "x"],
)
def test_a_body_has_to_say_that_it_is_json(server: TicketServer, new_name: Callable[[], str], kind: str) -> None:
    """A page elsewhere can make a browser send these, but not JSON."""
    for reply in (
        server.put(f"/sequence/{new_name()}", content=b'{"bits": 64}', headers={"Content-Type": kind}),
        server.post("/sequence/photos/bump", content=b'{"above": 1}', headers={"Content-Type": kind}),
    ):
        assert "application/json" in problem(reply, 422)


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "application/vnd.tickets+json"])
def test_what_is_json_may_say_so_in_many_ways(server: TicketServer, new_name: Callable[[], str], kind: str) -> None:
    reply = server.put(f"/sequence/{new_name()}", content=b'{"bits": 64}', headers={"Content-Type": kind})
    assert reply.status == 201


def test_a_large_body_is_refused(server: TicketServer) -> None:
    large = b'{"above": 1}' + b" " * 70_000
    for method, path in (("PUT", "/sequence/photos"), ("POST", "/sequence/photos/bump")):
        assert "65536" in problem(server.request(method, path, content=large, headers=JSON), 413)
        chunks = (b" " * 10_000 for _ in range(8))
        assert "65536" in problem(server.request(method, path, content=chunks, headers=JSON), 413)


def test_an_endless_body_is_not_collected(server: TicketServer) -> None:
    before = server.memory()
    head = b"PUT /sequence/photos HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"
    ticket = b"POST /ticket/photos HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"
    for request, status in ((head, b"413"), (ticket, b"413")):
        with socket.create_connection(server.address, timeout=5) as client:
            client.sendall(request)
            try:
                for _ in range(300):
                    client.sendall(b" " * 100_000)
            except OSError:
                pass
            else:
                assert client.recv(100).startswith(b"HTTP/1.1 " + status)
    assert server.memory() - before < 20_000_000


# -- request line and headers


@pytest.mark.parametrize(
    "request_",
    [
        b"GARBAGE\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\n\r\n",
        b"GET /caf\xe9 HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=lambda request: repr(request[:30]),
)
def test_what_is_no_request_is_answered_or_cut(server: TicketServer, request_: bytes) -> None:
    lines = server.log_text().count("\n")
    raw = server.raw(request_, timeout=3)
    if raw:
        status, headers, body = answer(raw)
        assert 400 <= status < 500
        assert headers["content-type"] == "application/problem+json"
        assert json.loads(body)["status"] == status
    assert server.log_text().count("\n") == lines  # strangers do not fill the log


@pytest.mark.parametrize(
    "filler", [b"X-Large: " + b"x" * 200_000, b"\r\n".join(b"X-%d: y" % i for i in range(20_000))], ids=["long", "many"]
)
def test_a_head_that_is_too_large_is_refused(server: TicketServer, filler: bytes) -> None:
    raw = server.raw(b"GET /ticket/photos HTTP/1.1\r\nHost: x\r\n" + filler + b"\r\n\r\n")
    assert not raw or answer(raw)[0] == 431


def test_a_request_line_that_is_too_long_is_refused(server: TicketServer) -> None:
    raw = server.raw(b"GET /ticket/photos?x=" + b"y" * 40_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert not raw or answer(raw)[0] == 431
    slow = b"GET /ticket/photos?x=" + b"y" * 500_000
    before = server.memory()
    assert len(server.raw(slow, timeout=3)) < 1000
    assert server.memory() - before < 10_000_000


def test_a_head_of_fifteen_kilobytes_is_served(server: TicketServer) -> None:
    headers = {f"X-{i}": "y" * 1000 for i in range(14)}
    assert server.get("/ticket/photos", headers=headers).status == 200
    assert server.get(f"/ticket/photos?_x={'y' * 15_000}").status == 200


def test_requests_may_follow_each_other_without_waiting(server: TicketServer) -> None:
    one = b"GET /ticket/photos HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET /ticket/photos HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    raw = server.raw(one * 999 + last)
    assert raw.count(b"HTTP/1.1 200 OK\r\n") == 1000
    bodies = [part.partition(b"\r\n\r\n")[2] for part in raw.split(b"HTTP/1.1 200 OK\r\n")[1:]]
    assert len({json.loads(body)["id"] for body in bodies}) == 1000


# -- slow, silent and many clients


def test_slow_and_silent_clients_are_cut_and_nobody_else_notices(server: TicketServer) -> None:
    def until_closed(first: bytes, then: bytes, pause: float) -> float:
        began = time.monotonic()
        with socket.create_connection(server.address, timeout=60) as client:
            client.sendall(first)
            client.settimeout(pause)
            while time.monotonic() - began < 60:
                try:
                    if not client.recv(65536):
                        break
                except TimeoutError:
                    if then:
                        try:
                            client.sendall(then)
                        except OSError:
                            break
                except OSError:
                    break
        return time.monotonic() - began

    kinds: list[tuple[bytes, bytes, float]] = [
        (b"", b"", 60),  # says nothing
        (b"GET /ticket/photos HTTP/1.1\r\nHo", b"", 60),  # stops in the middle
        (b"GET /ticket/photos HTTP/1.1\r\n", b"X: y\r\n", 0.5),  # a header now and then
        (b"PUT /sequence/photos HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", b" ", 0.5),  # a byte now and then
    ]
    with ThreadPoolExecutor(len(kinds)) as workers:
        waiting = [workers.submit(until_closed, *kind) for kind in kinds]
        while not all(each.done() for each in waiting):
            server.ticket("photos")
            time.sleep(0.2)
    for each in waiting:
        assert 15 < each.result() < 45


def test_a_client_that_closes_its_half_is_answered_or_cut(server: TicketServer) -> None:
    for data in (b"GET /ticket/photos HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /ticket/pho"):
        with socket.create_connection(server.address, timeout=10) as client:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            while client.recv(65536):
                pass


def test_a_thousand_idle_connections_hold_up_nobody(server: TicketServer) -> None:
    with ExitStack() as stack:
        for number in range(1000):
            client = stack.enter_context(socket.create_connection(server.address, timeout=10))
            if number % 2:
                client.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
                assert client.recv(65536).startswith(b"HTTP/1.1 200")
        began = time.monotonic()
        for _ in range(50):
            server.ticket("photos")
        assert time.monotonic() - began < 10
        assert server.get("/readyz").status == 200


def test_a_client_that_does_not_read_holds_up_nobody(server: TicketServer) -> None:
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(server.address)
        client.settimeout(1)
        stop = threading.Event()

        def flood() -> None:
            try:
                while not stop.is_set():
                    client.sendall(b"GET /ticket/photos?count=1000 HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
            except OSError:
                pass

        thread = threading.Thread(target=flood)
        thread.start()
        before = server.memory()
        for _ in range(30):
            server.ticket("accounts")
            time.sleep(0.02)
        assert server.memory() - before < 50_000_000
        stop.set()
        thread.join()
