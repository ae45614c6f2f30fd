"""Whether this process can keep the embedded pair in a folder."""

import os
from collections.abc import Iterable
from pathlib import Path

FILES = ("odd.sqlite3", "even.sqlite3")
"""The embedded pair, in offset order."""


def why_unusable(files: Iterable[Path]) -> str | None:
    """Why this process cannot use these files of one folder, or cannot make them; None where it can.

    Changes nothing: a folder that is missing is judged by the nearest one above it that exists.
    """
    files = list(files)
    folder = files[0].parent
    while not _exists(folder) and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        return f"{folder} is not a folder"
    if not os.access(folder, os.W_OK | os.X_OK):
        return _refusal(folder)
    for file in files:
        beside = sorted(folder.glob(f"{file.name}*")) if folder == file.parent else []
        for each in beside:
            if not os.access(each, os.R_OK | os.W_OK):
                return f"{each.name}: {_refusal(each)}"
    return None


def _exists(path: Path) -> bool:
    try:
        return path.exists() or path.is_symlink()
    except OSError:  # a folder above it cannot be searched, and is judged next
        return False


def _refusal(path: Path) -> str:
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return "Read-only file system"
    return (
        f"Permission denied: {path} belongs to user {path.stat().st_uid}, and this process runs as user {os.geteuid()}"
    )
