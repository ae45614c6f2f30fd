"""Values that are given in a file: passwords, tokens, and any other setting."""

import os
from collections.abc import Sequence
from pathlib import Path

from app.common.errors import SettingsError


def read_value(path: str, source: str) -> str:
    """The file's text without the line ends after it.

    Raises SettingsError, which names the `source` of the path: a variable or a flag. It does not repeat a URL, which
    holds a password and was given instead of a path.
    """
    shown = "" if "://" in path else f" {path}"
    try:
        text = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise SettingsError(
            f"{source}: the file{shown} cannot be read ({reason}); expected a file with the value"
        ) from error
    if not text.strip():
        raise SettingsError(f"{source}: the file{shown} is empty; expected a file with the value")
    return text


_Stamp = tuple[tuple[int, int, int] | None, ...]


class WatchedFiles:
    """Files that may change. To be made before they are read for the first time: no change after that is missed."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._seen = self._stamp()

    def __len__(self) -> int:
        return len(self._paths)

    def have_changed(self) -> bool:
        """Whether any has changed since this was asked last, or since this was made."""
        before, self._seen = self._seen, self._stamp()
        return self._seen != before

    def _stamp(self) -> _Stamp:
        """The values that change with a file. A Kubernetes Secret is a link to another file after it has changed."""
        found: list[tuple[int, int, int] | None] = []
        for path in self._paths:
            try:
                status = os.stat(path)
            except OSError:
                found.append(None)
            else:
                found.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(found)
