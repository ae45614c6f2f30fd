"""Who may: bearer tokens, compared in constant time and as bytes."""

import hashlib
import secrets
from collections.abc import Iterable

from pydantic import SecretStr

from app.problems import Problem

_REALM = 'Bearer realm="tickets"'


class Access:
    """Which tokens may do what. Its `repr` shows none."""

    def __init__(self, tokens: Iterable[SecretStr], admin_tokens: Iterable[SecretStr]) -> None:
        users = [token.get_secret_value().encode() for token in tokens]
        admins = [token.get_secret_value().encode() for token in admin_tokens]
        self._admins = admins or users
        self._users = users + admins if users else []
        self.tickets_are_free = not self._users
        self.changes_are_free = not self._admins

    def __repr__(self) -> str:
        return f"<Access {len(self._users)} tokens, {len(self._admins)} for changes>"

    def refusal_for_tickets(self, authorization: bytes | None) -> Problem | None:
        """None if this Authorization header may draw and read; else what the client is told."""
        if self.tickets_are_free or _is_one_of(authorization, self._users):
            return None
        return _unknown(authorization)

    def refusal_for_changes(self, authorization: bytes | None) -> Problem | None:
        """None if this Authorization header may make and bump sequences; else what the client is told."""
        if self.changes_are_free or _is_one_of(authorization, self._admins):
            return None
        if _is_one_of(authorization, self._users):
            return Problem(403, "this token may draw tickets, but not make or bump a sequence")
        return _unknown(authorization)


def short_name(authorization: bytes | None) -> str:
    """A name for a token in the log: the beginning of its hash, never any of itself."""
    token = _token(authorization)
    return hashlib.sha256(token).hexdigest()[:8] if token else "none"


def _token(authorization: bytes | None) -> bytes:
    scheme, _, token = (authorization or b"").partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def _is_one_of(authorization: bytes | None, tokens: list[bytes]) -> bool:
    given = _token(authorization)
    # every token is compared, so that the time says nothing about which one it was
    matches = [secrets.compare_digest(given, token) for token in tokens]
    return bool(given) and any(matches)


def _unknown(authorization: bytes | None) -> Problem:
    if _token(authorization):
        return Problem(401, "this token is not known", (("www-authenticate", f'{_REALM}, error="invalid_token"'),))
    return Problem(401, "a bearer token is wanted: Authorization: Bearer …", (("www-authenticate", _REALM),))
