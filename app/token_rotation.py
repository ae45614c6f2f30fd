"""New tokens without a restart: their files are read again on SIGHUP, and when they change."""

import asyncio
import logging
from collections.abc import Callable

from app.clients.tokens import Tokens
from app.common.errors import SettingsError
from app.common.log import event
from app.common.value_files import WatchedFiles
from app.settings import Settings

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often the files are looked at."""
SHORTEST_TOKEN = 16
"""Characters. A shorter one is warned of: it can be guessed."""


class TokenRotation:
    """Keeps `tokens` at what the tokens' `files` say. `load`: reads the settings anew; only their tokens are taken.

    A file that cannot be used changes nothing: the tokens that were valid stay so, and the log says why.
    """

    def __init__(self, tokens: Tokens, load: Callable[[], Settings], files: WatchedFiles) -> None:
        self._tokens = tokens
        self._load = load
        self._files = files

    def read_again(self) -> None:
        """Read the tokens again. If no token comes from a file, only log that."""
        if not self._files:
            event(log, logging.INFO, "no tokens to read again: none come from files")
            return
        self._files.have_changed()  # whatever has is read now
        try:
            settings = self._load()
        except SettingsError as error:
            event(log, logging.ERROR, "the tokens stay as they were", reason=error)
            return
        self._tokens.replace(settings.tokens, settings.admin_tokens)
        warn_of_short_tokens(settings)
        event(
            log, logging.INFO, "read the tokens again",
            tokens=len(settings.tokens), admin_tokens=len(settings.admin_tokens),
        )  # fmt: skip

    async def watch(self) -> None:
        """Read the tokens again whenever a file has changed, until cancelled."""
        while self._files:
            await asyncio.sleep(LOOK_SECONDS)
            if self._files.have_changed():
                self.read_again()


def warn_of_short_tokens(settings: Settings) -> None:
    """Say so where a token is short enough to be guessed."""
    for variable, tokens in (("TICKETS_TOKENS", settings.tokens), ("TICKETS_ADMIN_TOKENS", settings.admin_tokens)):
        short = sum(len(token.get_secret_value()) < SHORTEST_TOKEN for token in tokens)
        if short:
            event(log, logging.WARNING, "tokens are short", variable=variable, shorter_than=SHORTEST_TOKEN, count=short)
