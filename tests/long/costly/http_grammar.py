"""Requests in HTTP/1.1, from a grammar that leans towards what is long, deep and many."""

import base64
import json
from random import Random

from tests.long.costly.case import TOKEN

NAMES = ["photos", "accounts", "nobody", "s7", "s1999", "ph%6ftos", "x" * 64, "y" * 200, "%25", "a%00b", "ü"]
KINDS = "instagram", "snowflake", "flake", "objectid", "uuid7", "ulid", "uuid4", "simpleflake", "ticket", "instagram32"
IDS = "1", "7" * 19, "9" * 300, "0" * 24, "019a0c4e-7f6b-7c3a-9d52-0f6e1b7a4c88", "Z" * 26, "x" * 4000, "%00" * 900
PATHS = (
    "/", "/docs", "/openapi.json", "/metrics", "/livez", "/readyz", "/healthz", "/sequence", "/favicon.ico", "*", "//",
    "/static/status.js", "/nowhere/" + "a/" * 2000, "http://x/ticket/photos", "/%2e%2e/" * 300, "/ticket", "/decode",
)  # fmt: skip
SEARCHES = "", "s", "s1", "photos", "_" * 64, "z" * 64, "z" * 4000, "%25" * 500
ACCEPTS = (
    "text/plain", "*/*", ",".join(["text/plain;q=0.1"] * 60), ";q=" * 340, "," * 1024, ", ;q=0," * 2_000,
)  # fmt: skip


def request(chance: Random) -> bytes:
    """One request, well formed or not."""
    return chance.choice([_read, _read, _ticket, _ticket, _change, _decode, _headers, _chunked, _odd])(chance)


def opening(chance: Random) -> bytes:
    """What a connection may begin with."""
    return chance.choice([b"", b"", b"", b"\r\n" * 500, _message("GET", "/livez"), b"GET /ticket/photos HTTP/1.1\r\n"])


def _message(method: str, target: str, *fields: str, body: bytes = b"", version: str = "1.1") -> bytes:
    lines = [f"{method} {target} HTTP/{version}", "host: 127.0.0.1", *fields]
    if body and not any(field.startswith("transfer-encoding") for field in fields):
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogatepass") + body


def _token(chance: Random) -> list[str]:
    token = TOKEN.decode()
    basic = base64.b64encode(b"x:" + TOKEN).decode()
    odd = ["Bearer wrong", f"Basic {basic}", "Basic " + "A" * 8000]
    return chance.choice([[f"authorization: Bearer {token}"]] * 4 + [[]] + [[f"authorization: {each}"] for each in odd])


def _read(chance: Random) -> bytes:
    path = chance.choice(PATHS)
    if chance.random() < 0.4:
        search = chance.choice(SEARCHES)
        page = chance.choice([1, 2, 20, 999_999])
        path = chance.choice([f"/?search={search}&page={page}", f"/sequence?search={search}&limit={page}",
                              f"/sequence?after={search}", f"/?of=photos&id={chance.choice(IDS)}",
                              f"/sequence/{chance.choice(NAMES)}", "/?" + "&".join(["a=b"] * 500)])  # fmt: skip
    method = chance.choice(["GET"] * 6 + ["HEAD", "POST", "DELETE", "OPTIONS"])
    accept = [f"accept: {chance.choice(ACCEPTS)}"] * (chance.random() < 0.3)
    return _message(method, path, *_token(chance), *accept)


def _ticket(chance: Random) -> bytes:
    count = chance.choice(["", "?count=1", "?count=1000", "?count=1001", "?count=" + "9" * 4000, "?key=7&shard=1",
                           "?" + "&".join(f"_{n}={n}" for n in range(chance.choice([5, 30, 3000]))),
                           "?" + "%63ount=%31&" * 30, "?" + "&" * 8000])  # fmt: skip
    target = f"/ticket/{chance.choice(NAMES)}{count}"
    if chance.random() < 0.3:
        target = f"/block/{chance.choice(NAMES)}?size={chance.choice([1, 10_000, 10_001])}"
    accept = [f"accept: {chance.choice(ACCEPTS)}"] * (chance.random() < 0.4)
    return _message(chance.choice(["GET", "POST", "HEAD", "PUT"]), target, *_token(chance), *accept)


def body(chance: Random) -> bytes:
    """A body, mostly JSON that is large or deep."""
    size = chance.choice([1, 100, 5_000, 60_000])
    return chance.choice([
        json.dumps({"kind": chance.choice(KINDS), "epoch": 1, "shards": 10}).encode(),
        b"[" * size,
        b'{"a":' * (size // 5) + b"1" + b"}" * (size // 5),
        b"[" + b"1," * (size // 2) + b"1]",
        b'{"bits":' + b"9" * size + b"}",
        b'{"bits":1e' + b"9" * size + b"}",
        b"{" + b",".join(b'"k%d":%d' % (number, number) for number in range(size // 12)) + b"}",
        b'{"above": "' + b"9" * size + b'"}',
        b'{"above": 1, "force": true}',
        b'{"kind":"' + b"\\u0041" * (size // 6) + b'"}',
        b"\xff\xfe" * (size // 2),
        b'--b\r\ncontent-disposition: form-data; name="a"\r\n\r\n1\r\n' * (size // 50) + b"--b--\r\n",
        b"a=b&" * (size // 4),
        b"x" * size,
    ])  # fmt: skip


def _change(chance: Random) -> bytes:
    name = chance.choice(NAMES)
    method, target = chance.choice([("PUT", f"/sequence/{name}"), ("POST", f"/sequence/{name}/bump")])
    kind = chance.choice(
        ["application/json"] * 5 + ["multipart/form-data; boundary=b", "text/plain", "x/y;" + "a=b;" * 900]
    )
    expect = ["expect: 100-continue"] * (chance.random() < 0.2)
    return _message(method, target, f"content-type: {kind}", *_token(chance), *expect, body=body(chance))


def _decode(chance: Random) -> bytes:
    id_ = chance.choice(IDS)
    if chance.random() < 0.5:
        return _message("GET", f"/decode/{chance.choice(NAMES)}/{id_}", *_token(chance))
    extra = chance.choice(["", "&epoch=0", "&shards=9", "&" + "&".join(f"x{n}=1" for n in range(500))])
    return _message("GET", f"/decode?kind={chance.choice(KINDS)}&id={id_}{extra}", *_token(chance))


def _headers(chance: Random) -> bytes:
    many = chance.choice([10, 300, 1_500])
    fields = chance.choice([
        [f"x{n}: y" for n in range(many)], ["a:"] * many, ["cookie: " + "a=b; " * many], ["x: " + "y" * 15_000],
        ["accept: " + "," * many] * 10, ["connection: " + "close," * many], ["x: y\r\n folded"] * 50,
        ["connection: upgrade", "upgrade: h2c", *["http2-settings: AA"] * many],
        ["content-length: 0", "content-length: 0"], ["sec-fetch-site: same-origin"] * many,
    ])  # fmt: skip
    return _message("GET", chance.choice(["/ticket/photos", "/livez", "/", "/metrics"]), *fields, *_token(chance))


def _chunked(chance: Random) -> bytes:
    size = chance.choice([1, 1, 16, 4_000])
    times = chance.choice([1, 100, 5_000])
    extension = chance.choice([b"", b";a=b", b";" + b"x" * 2_000])
    chunk = b"%x%b\r\n%b\r\n" % (size, extension, b"[" * size)
    trailers = chance.choice([b"", b"x: y\r\n" * 100, b"a:\r\n" * 2_000])
    target = chance.choice(["/ticket/photos", "/sequence/photos", "/livez", "/sequence/photos/bump"])
    head = _message(chance.choice(["PUT", "POST"]), target, "transfer-encoding: chunked", *_token(chance),
                    "content-type: application/json")  # fmt: skip
    return head + chunk * times + b"0\r\n" + trailers + b"\r\n"


def _odd(chance: Random) -> bytes:
    return chance.choice([
        b"\r\n" * 500, b"\n" * 1000, b"GET / HTTP/1.1\r\n", b"GET /" + b"a" * 15_000, b"\x16\x03\x01" + b"\x00" * 300,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /livez HTTP/1.0\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nconnection: close\r\n\r\n",
        b"POST /ticket/photos HTTP/1.1\r\ncontent-length: 900000000\r\n\r\n" + b"x" * 60_000,
        b"PUT /sequence/photos HTTP/1.1\r\ncontent-length: 900000000\r\n\r\n" + b"x" * 60_000,
        b"GET /ticket/photos HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 8_000, b"CONNECT a:1 HTTP/1.1\r\n\r\n",
        b"x" * 2_000, b"GET /livez HTTP/1.1\r\n\r\n", b"GET /ticket/photos HTTP/1.1\r\n\r\n",
    ])  # fmt: skip
