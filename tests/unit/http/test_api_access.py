"""Which right a request needs, the token that it shows, and what a browser does for another site."""

from base64 import b64encode

import pytest

from app.access import Right
from app.http.access import is_cross_site, names_this_machine, right_of, token_of

TICKETS, READING, CHANGES = Right
RIGHTS = {
    None: ("GET /healthz", "HEAD /readyz", "POST /livez"),
    TICKETS: ("GET /ticket/photos", "POST /block/photos", "PUT /ticket/photos"),
    READING: ("GET /ticket", "GET //ticket/photos", "GET /livez/", "HEAD /sequence", "OPTIONS /sequence/photos"),
    CHANGES: ("PUT /sequence/photos", "POST /sequence/photos/bump", "POST /tickets/photos", "BREW /metrics"),
}
TOKENS: dict[bytes | None, tuple[str | None, str | None]] = {
    None: (None, None),
    b"Bearer abc": ("abc", "abc"),
    b"bearer  abc ": ("abc", "abc"),
    b"Bearer": (None, None),
    b"abc": (None, None),
    b"Basic " + b64encode(b"me:a:bc"): (None, "a:bc"),
    b"Basic " + b64encode(b"me:"): (None, None),
    b"Basic !!!": (None, None),
    b"Basic \xff": (None, None),
    "Bearer é".encode(): ("é", "é"),
    b"Bearer \xff": ("\udcff", "\udcff"),
}
"""The token in a header, for drawing and changing, and for reading."""


def test_the_right_that_a_request_needs() -> None:
    for right, requests in RIGHTS.items():
        for request in requests:
            assert right_of(*request.split()) is right, request


@pytest.mark.parametrize("authorization", TOKENS)
def test_the_token_of_a_header(authorization: bytes | None) -> None:
    token, for_reading = TOKENS[authorization]
    assert token_of(authorization, TICKETS) == token_of(authorization, CHANGES) == token
    assert token_of(authorization, READING) == for_reading


@pytest.mark.parametrize(
    ("site", "origin", "is_other"),
    [
        (None, None, False),
        (b"none", None, False),
        (b"same-origin", b"http://elsewhere.example", False),  # a proxy in front has changed the Host
        (b"same-site", None, False),
        (b"Cross-Site", b"http://tickets:8000", True),
        (b"", None, True),
        (None, b"HTTP://Tickets:8000", False),
        (None, b"http://tickets", True),
        (None, b"http://tickets:8000.elsewhere.example", True),
        (None, b"null", True),
        (None, b"", True),
    ],
)
def test_a_browser_for_another_site(site: bytes | None, origin: bytes | None, is_other: bool) -> None:
    given = {b"host": b"tickets:8000", b"sec-fetch-site": site, b"origin": origin}
    assert is_cross_site({name: value for name, value in given.items() if value is not None}) is is_other


def test_names_of_this_machine_and_others() -> None:
    for host in (None, b"localhost", b"LocalHost:8000", b"127.0.0.1:8000", b"[::1]", b"[::1]:8000"):
        assert names_this_machine(host), host
    for host in (b"", b"elsewhere.example", b"localhost.example", b"[::1", b"1.2.3", b":8000", b"\xff"):
        assert not names_this_machine(host), host
