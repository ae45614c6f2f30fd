"""New tokens without a restart: their files are read again at SIGHUP, and every second."""

import asyncio
import logging
from collections.abc import Sequence

from pydantic import SecretStr

from app.access import Access
from app.errors import SettingsError
from app.settings import Settings, variable

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often the files are read."""
SHORTEST_TOKEN = 16
"""Characters. A shorter token can be guessed."""


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


def _plain(tokens: Sequence[SecretStr]) -> list[str]:
    return [token.get_secret_value() for token in tokens]
