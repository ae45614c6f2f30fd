"""The most expensive inputs that were found, by a name: `make test` runs them, and the search begins with them."""

import json

from tests.long.costly.case import TOKEN, Case
from tests.long.costly.redis_grammar import array


def request(target: str, *fields: str, method: str = "GET", body: bytes = b"") -> bytes:
    """A request over HTTP, with the token."""
    lines = [f"{method} {target} HTTP/1.1", "host: x", f"authorization: Bearer {TOKEN.decode()}", *fields]
    if body:
        lines += [f"content-length: {len(body)}", "content-type: application/json"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def _many(*words: bytes, times: int, last: bytes) -> bytes:
    """This number of commands in Redis' protocol, each with another last word."""
    return b"".join(array(*words, last % number) for number in range(times))


_UNKNOWN = b"".join(array(b"EXISTS", *(b"u%d" % (256 * part + n) for n in range(256))) for part in range(90))
_CHUNKED = request("/livez", "transfer-encoding: chunked", method="POST")
_MANY_KEYS = json.dumps({f"k{number}": number for number in range(6_000)}).encode()

CORPUS = {
    "tickets from the reserve": Case("http", "reserve", 40, request("/ticket/photos")),
    "lists from the reserve": Case("http", "reserve", 40, request("/ticket/photos?count=1000")),
    "the API's description": Case("http", "plain", 40, request("/openapi.json")),
    "its page": Case("http", "plain", 40, request("/docs"), waits=True),
    "every sequence": Case("http", "plain", 40, request("/sequence")),
    "every sequence, unread": Case("http", "plain", 40, request("/sequence"), reads=False),
    "many fields": Case("http", "plain", 40, request("/ticket/photos", *[f"x{number}: y" for number in range(1_500)])),
    "chunks of a byte": Case("http", "plain", 40, _CHUNKED + b"1\r\nx\r\n" * 5_000 + b"0\r\n\r\n"),
    "deep JSON": Case("http", "plain", 40, request("/sequence/photos", method="PUT", body=b"[" * 60_000)),
    "many keys": Case("http", "plain", 40, request("/sequence/photos", method="PUT", body=_MANY_KEYS), waits=True),
    "the status page": Case("http", "plain", 40, request("/?search=s"), waits=True),
    "lists that nobody waits for": Case("http", "plain", 40, request("/sequence"), units=1),
    "bytes that nobody waits for": Case("http", "plain", 40, b"PUT /x HTTP/1.1\r\nx: " + b"[" * 300_000, units=1),
    "chunks that nobody waits for": Case("http", "plain", 40, _CHUNKED + b"1\r\nx\r\n" * 9_000, units=1),
    "empty lines": Case("redis", "plain", 1, b"\r\n" * 4_096),
    "empty arrays": Case("redis", "tokens", 40, b"*0\r\n" * 2_000),
    "inline escapes": Case("redis", "plain", 1, b"PING " + b'"\\x41" ' * 5_000 + b"\r\n"),
    "fresh globs": Case("redis", "plain", 1, _many(b"CONFIG", b"GET", times=3_000, last=b"[a-z]*?%d*")),
    "many arguments": Case("redis", "plain", 1, array(b"ECHO", *[b""] * 1_000) * 4),
    "unknown names": Case("redis", "plain", 1, _UNKNOWN),
    "the commands": Case("redis", "plain", 1, array(b"COMMAND")),
    "transactions": Case("redis", "plain", 40, array(b"MULTI") + array(b"INCR", b"photos") * 1_000 + array(b"EXEC")),
    "tickets": Case("redis", "reserve", 40, array(b"INCR", b"photos")),
    "before a login": Case("redis", "tokens", 40, array(b"EXISTS", *[b"n"] * 250)),
}
