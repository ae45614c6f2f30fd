"""Authorization, as HTTP's headers carry it.

A browser does not send bearer tokens by itself. For reading, HTTP Basic with a token as the password is accepted too,
so that an operator can open the status page. A change to a sequence requires a bearer token, because a page of another
site could make a browser send Basic credentials.
"""

import base64
import binascii
from collections.abc import Iterable

from app.clients.tokens import Tokens
from app.common.addresses import is_ip_address
from app.http.problems import Code, Problem

BEARER = 'Bearer realm="tickets"'
BASIC = 'Basic realm="tickets", charset="UTF-8"'
_SITE = b"sec-fetch-site"


class Access(Tokens):
    """The same tokens as they stand in Authorization headers."""

    def is_guess(self, authorization: bytes | None) -> bool:
        """Whether an Authorization header that was refused holds a token at all."""
        return bool(bearer(authorization) or _basic(authorization))

    def refusal_for_tickets(self, authorization: bytes | None) -> Problem | None:
        """None if this Authorization header may draw; else what the client is told."""
        if self.tickets_are_free or self.may_draw(bearer(authorization)):
            return None
        return _unknown(authorization)

    def refusal_for_reading(self, authorization: bytes | None, *, page: bool = False) -> Problem | None:
        """None if this Authorization header may read; else what the client, or for a page the browser, is told."""
        if self.tickets_are_free or self.may_draw(bearer(authorization) or _basic(authorization)):
            return None
        return _unknown(authorization, ask_browser=page)

    def refusal_for_changes(self, authorization: bytes | None) -> Problem | None:
        """None if this Authorization header may make and bump sequences; else what the client is told."""
        token = bearer(authorization)
        if self.changes_are_free or self.may_change(token):
            return None
        if self.may_draw(token):
            return Problem(Code.FORBIDDEN, "this token may draw tickets, but not make or bump a sequence")
        return _unknown(authorization)


def is_cross_site(fields: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a browser says, anywhere in these headers, that a page of another site makes it ask. No program but a
    browser sends this header, and no page can change it."""
    for name, value in fields:
        if len(name) == len(_SITE) and name.lower() == _SITE and b"cross-site" in value.lower():
            return True
    return False


CROSS_SITE = Problem(Code.CROSS_SITE, "a browser asks on behalf of a page of another site")


def names_this_machine(host: bytes | None) -> bool:
    """Whether a Host header is an IP address or localhost, with or without a port; or missing, which no browser does.

    Any other name may be one that a page on the internet has had changed to the address of this machine.
    """
    if host is None:
        return True
    text = host.decode("latin-1").strip().lower()
    name = text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]
    return name == "localhost" or is_ip_address(name)


def bearer(authorization: bytes | None) -> bytes:
    """The bearer token in an Authorization header; empty where there is none."""
    scheme, _, token = (authorization or b"").partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def _basic(authorization: bytes | None) -> bytes:
    """The password; the user's name is ignored."""
    scheme, _, encoded = (authorization or b"").partition(b" ")
    if scheme.lower() != b"basic":
        return b""
    try:
        return base64.b64decode(encoded.strip(), validate=True).partition(b":")[2]
    except binascii.Error:
        return b""


def _unknown(authorization: bytes | None, *, ask_browser: bool = False) -> Problem:
    if bearer(authorization):
        return _unauthenticated("this token is not known", f'{BEARER}, error="invalid_token"')
    if not ask_browser:
        return _unauthenticated("a bearer token is required: Authorization: Bearer …", BEARER)
    if _basic(authorization):
        return _unauthenticated(f"the password is not a known token; {_LOGIN}", f"{BEARER}, {BASIC}")
    detail = f"a token is required. In a browser, {_LOGIN}. A program sends Authorization: Bearer …"
    return _unauthenticated(detail, f"{BEARER}, {BASIC}")


_LOGIN = "log in with any user name and a token as the password"


def _unauthenticated(detail: str, ways: str) -> Problem:
    return Problem(Code.UNAUTHENTICATED, detail, (("www-authenticate", ways),))
