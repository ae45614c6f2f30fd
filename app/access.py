"""Who may do what: the bearer tokens that count now, compared in constant time.

Tokens change without a restart: their files are read again at SIGHUP, and every second.
"""

import asyncio
import logging
from collections.abc import Iterable
from enum import StrEnum
from hashlib import sha256
from hmac import compare_digest

from pydantic import SecretStr

from app.errors import Forbidden, SettingsError, Unauthenticated
from app.settings import Settings, variable

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often the files are read."""
SHORTEST_TOKEN = 16
"""Characters. A shorter token can be guessed."""


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


class TokenFiles:
    """Keeps `access` at what the files of the settings' tokens hold.

    A file that cannot be used changes nothing: the tokens of before stay, and the log says why.
    """

    def __init__(self, settings: Settings, access: Access) -> None:
        self._access, self._trouble = access, ""
        self._use(settings)

    async def watch(self) -> None:
        """Read the files every LOOK_SECONDS, until this is cancelled. The log has what changes, once."""
        while True:
            self.read_again(is_asked=False)
            await asyncio.sleep(LOOK_SECONDS)

    def read_again(self, is_asked: bool = True) -> None:
        """Read the tokens again, from the files that hold them. is_asked: whether the log has it though it is alike."""
        before, self._trouble = self._trouble, ""
        try:
            settings = self._settings.with_new_tokens()
        except SettingsError as error:
            self._trouble = str(error)
            if is_asked or self._trouble != before:
                log.error("the tokens stay as they were: %s", error)  # noqa: TRY400
            return
        if settings is None:
            if is_asked:
                log.info("no tokens to read again: none come from files")
        elif is_asked or settings != self._settings:
            self._use(settings)
            counts = len(settings.tokens), len(settings.admin_tokens)
            log.info("read the tokens again: %d tokens, %d admin tokens", *counts)

    def _use(self, settings: Settings) -> None:
        self._settings = settings
        self._access.replace(_plain(settings.tokens), _plain(settings.admin_tokens))
        for field in ("tokens", "admin_tokens"):
            short = sum(len(token) < SHORTEST_TOKEN for token in _plain(getattr(settings, field)))
            if short:
                log.warning("%s has %d tokens of fewer than %d characters", variable(field), short, SHORTEST_TOKEN)


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()


def _is_among(digest: bytes, known: list[bytes]) -> bool:
    return sum(compare_digest(digest, each) for each in known) > 0  # all of them: the time reveals none of them


def _plain(tokens: Iterable[SecretStr]) -> list[str]:
    return [token.get_secret_value() for token in tokens]
