"""Who may do what: the bearer tokens that count now, compared in constant time."""

from collections.abc import Iterable
from enum import StrEnum
from hashlib import sha256
from hmac import compare_digest

from app.errors import Forbidden, Unauthenticated


class Right(StrEnum):
    """What a client wants to do: draw tickets, read about sequences, or make and bump them."""

    TICKETS = "tickets"
    READING = "reading"
    CHANGES = "changes"


class Access:
    """The tokens. It keeps their digests only, so neither its `repr` nor a core dump of it shows a token.

    tokens: may draw and read, and without `admin_tokens` change, too. admin_tokens: may do everything. A right that no
    token is named for needs none.
    generation: rises whenever the tokens are replaced; who remembers an answer of `check` compares it.
    """

    def __init__(self, tokens: Iterable[str] = (), admin_tokens: Iterable[str] = ()) -> None:
        self.generation = 0
        self.replace(tokens, admin_tokens)

    def replace(self, tokens: Iterable[str], admin_tokens: Iterable[str]) -> None:
        """From now on these tokens count, and no others."""
        users, admins = [_digest(each) for each in tokens], [_digest(each) for each in admin_tokens]
        self._changing = admins or users
        self._drawing = users + admins if users else []
        self.generation += 1

    def needs_token(self, right: Right) -> bool:
        """Whether a client has to show a token for this."""
        return bool(self._allowed(right))

    def check(self, token: str | None, right: Right) -> None:
        """Raise Unauthenticated where a token is wanted and this is none that is known, Forbidden where it may not.

        token: what the client shows, None where it shows none. Tokens are UTF-8: a door decodes the bytes that it got
        with `surrogateescape`. Where no token is wanted, any is as good as none.
        """
        allowed = self._allowed(right)
        if not allowed:
            return
        if not token:
            raise Unauthenticated("a token is required")
        digest = _digest(token)
        if _is_among(digest, allowed):
            return
        if _is_among(digest, self._drawing):
            raise Forbidden("this token may draw tickets, but not make or bump a sequence")
        raise Unauthenticated("this token is not known")

    def _allowed(self, right: Right) -> list[bytes]:
        return self._changing if right is Right.CHANGES else self._drawing


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()


def _is_among(digest: bytes, known: list[bytes]) -> bool:
    return sum(compare_digest(digest, each) for each in known) > 0  # all of them: the time reveals none of them
