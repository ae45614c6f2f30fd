"""Bearer tokens, compared in constant time and as bytes."""

import hashlib
import secrets
from collections.abc import Iterable

from pydantic import SecretStr


class Tokens:
    """Which tokens may do what. Its `repr` shows none.

    `tickets_are_free`, `changes_are_free`: whether no token is needed for that. `generation`: changes whenever the
    tokens do, so that whoever has remembered one knows when to ask again.
    """

    def __init__(self, tokens: Iterable[SecretStr], admin_tokens: Iterable[SecretStr]) -> None:
        self.generation = 0
        self.replace(tokens, admin_tokens)

    def replace(self, tokens: Iterable[SecretStr], admin_tokens: Iterable[SecretStr]) -> None:
        """From now on these tokens count, and no others."""
        users = [token.get_secret_value().encode() for token in tokens]
        admins = [token.get_secret_value().encode() for token in admin_tokens]
        self._admins = admins or users
        self._users = users + admins if users else []
        self.tickets_are_free = not self._users
        self.changes_are_free = not self._admins
        self.generation += 1

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {len(self._users)} tokens, {len(self._admins)} for changes>"

    def may_draw(self, token: bytes) -> bool:
        """Whether this token may draw tickets, and read."""
        return _is_one_of(token, self._users)

    def may_change(self, token: bytes) -> bool:
        """Whether this token may make and bump sequences."""
        return _is_one_of(token, self._admins)


def short_name(token: bytes) -> str:
    """A name for a token in the log: the beginning of its hash, never a part of the token."""
    return hashlib.sha256(token).hexdigest()[:8] if token else "none"


def _is_one_of(given: bytes, tokens: list[bytes]) -> bool:
    # every token is compared, so that the time does not reveal which one matched
    matches = [secrets.compare_digest(given, token) for token in tokens]
    return bool(given) and any(matches)
