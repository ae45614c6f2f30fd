"""The access rules: which token may ask for what."""

import base64

import pytest
from pydantic import SecretStr

from app.clients.tokens import short_name
from app.http.access import Access, bearer
from app.server import warn_if_open_to_all
from app.settings import load


def access(tokens: str = "", admin_tokens: str = "") -> Access:
    return Access(map(SecretStr, tokens.split()), map(SecretStr, admin_tokens.split()))


def statuses(of: Access, authorization: bytes | None) -> tuple[int, int, int]:
    """What tickets, reading and changes are answered with."""
    refusals = (
        of.refusal_for_tickets(authorization),
        of.refusal_for_reading(authorization),
        of.refusal_for_changes(authorization),
    )
    tickets, reading, changes = (200 if each is None else each.status for each in refusals)
    return tickets, reading, changes


@pytest.mark.parametrize(
    ("tokens", "admins", "given", "expected"),
    [
        ("", "", None, (200, 200, 200)),
        ("", "", b"Bearer whatever", (200, 200, 200)),
        ("u v", "", None, (401, 401, 401)),
        ("u v", "", b"Bearer u", (200, 200, 200)),
        ("u v", "", b"bearer v", (200, 200, 200)),
        ("u v", "", b"Bearer w", (401, 401, 401)),
        ("", "a b", None, (200, 200, 401)),
        ("", "a b", b"Bearer a", (200, 200, 200)),
        ("", "a b", b"Bearer x", (200, 200, 401)),
        ("u", "a", None, (401, 401, 401)),
        ("u", "a", b"Bearer u", (200, 200, 403)),
        ("u", "a", b"Bearer a", (200, 200, 200)),
        ("u", "a", b"Bearer ", (401, 401, 401)),
        ("u", "a", b"u", (401, 401, 401)),
        ("u", "a", b"Bearer  u ", (200, 200, 403)),
        ("u", "a", b"Basic " + base64.b64encode(b"me:u"), (401, 200, 401)),
        ("u", "a", b"Basic " + base64.b64encode(b"me:a"), (401, 200, 401)),
        ("u", "a", b"Basic " + base64.b64encode(b"u"), (401, 401, 401)),
        ("u", "a", b"Basic not base64", (401, 401, 401)),
        ("tökén-票", "", "Bearer tökén-票".encode(), (200, 200, 200)),
        ("tökén", "", "Bearer tökén".encode("latin-1"), (401, 401, 401)),
        ("u", "", b"Bearer \xff\xfe", (401, 401, 401)),
    ],
)
def test_the_matrix(tokens: str, admins: str, given: bytes | None, expected: tuple[int, int, int]) -> None:
    assert statuses(access(tokens, admins), given) == expected


def test_a_browser_is_asked_on_pages_alone() -> None:
    page = access("u").refusal_for_reading(None, page=True)
    rest = access("u").refusal_for_reading(None)
    assert page is not None
    assert rest is not None
    assert dict(page.headers)["www-authenticate"].startswith('Bearer realm="tickets", Basic realm="tickets"')
    assert dict(rest.headers)["www-authenticate"] == 'Bearer realm="tickets"'


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "a token is required. In a browser, log in with any user name and a token as the password."),
        (b"Basic " + base64.b64encode(b"me:secret-9"), "the password is not a known token; log in with any user name"),
        (b"Bearer secret-9", "this token is not known"),
    ],
)
def test_a_page_says_how_to_log_in(given: bytes | None, said: str) -> None:
    refusal = access("u").refusal_for_reading(given, page=True)
    assert refusal is not None
    assert refusal.detail.startswith(said)
    assert "secret" not in refusal.detail


def test_no_token_is_shown() -> None:
    assert "secret" not in repr(access("secret-1", "secret-2"))
    given = [b"Bearer secret-1", b"bearer  secret-1", b"Bearer secret-2", None, b"Basic abc"]
    first, again, other, *none = [short_name(bearer(authorization)) for authorization in given]
    assert first == again != other
    assert len(first) == 8
    assert none == ["none", "none"]


@pytest.mark.parametrize(
    ("settings", "warned"),
    [({}, False), ({"TICKETS_HOST": "localhost"}, False), ({"TICKETS_HOST": "::1"}, False),
     ({"TICKETS_HOST": "127.9.9.9"}, False), ({"TICKETS_HOST": "0.0.0.0"}, True), ({"TICKETS_HOST": "::"}, True),
     ({"TICKETS_HOST": "tickets.internal"}, True), ({"TICKETS_HOST": "0.0.0.0", "TICKETS_TOKENS": "t"}, False),
     ({"TICKETS_HOST": "0.0.0.0", "TICKETS_ADMIN_TOKENS": "t"}, False)],
)  # fmt: skip
def test_listening_beyond_loopback_without_tokens_is_warned_of(
    settings: dict[str, str], warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    warn_if_open_to_all(load({"TICKETS_DATABASES": "embedded", **settings}))
    assert ("listens beyond loopback" in caplog.text) is warned
