"""New tokens without a restart: their files are read again at SIGHUP, and when they change."""

import asyncio
import logging
import os
from collections.abc import Sequence

from pydantic import SecretStr

from app.access import Access
from app.errors import SettingsError
from app.setting_names import variable
from app.settings import Settings

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often the files are looked at."""
SHORTEST_TOKEN = 16
"""Characters. A shorter token can be guessed."""


class TokenFiles:
    """Keeps `access` at what the files of the settings' tokens hold.

    A file that cannot be used changes nothing: the tokens of before stay, and the log says why.
    """

    def __init__(self, settings: Settings, access: Access) -> None:
        self._settings, self._access = settings, access
        self._seen: list[tuple[int, ...] | None] = []
        self._use(settings)

    async def watch(self) -> None:
        """Read the files again whenever one has changed, until this is cancelled."""
        while True:
            found = [_stamp(path) for path in self._settings.token_files]
            if found != self._seen:  # so at the first look, too: a file may have changed since the settings were read
                self._seen = found
                self.read_again()
            await asyncio.sleep(LOOK_SECONDS)

    def read_again(self) -> None:
        """Read the tokens again, from the files that hold them."""
        if not self._settings.token_files:
            log.info("no tokens to read again: none come from files")
            return
        try:
            settings = self._settings.with_new_tokens()
        except SettingsError as error:
            log.error("the tokens stay as they were: %s", error)  # noqa: TRY400
            return
        self._use(settings)
        log.info("read the tokens again: %d tokens, %d admin tokens", len(settings.tokens), len(settings.admin_tokens))

    def _use(self, settings: Settings) -> None:
        self._access.replace(_plain(settings.tokens), _plain(settings.admin_tokens))
        for field in ("tokens", "admin_tokens"):
            short = sum(len(token) < SHORTEST_TOKEN for token in _plain(getattr(settings, field)))
            if short:
                log.warning("%s has %d tokens of fewer than %d characters", variable(field), short, SHORTEST_TOKEN)


def _plain(tokens: Sequence[SecretStr]) -> list[str]:
    return [token.get_secret_value() for token in tokens]


def _stamp(path: str) -> tuple[int, ...] | None:
    """Return what changes with a file, also where the path is a link, as that of a Kubernetes Secret is."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
