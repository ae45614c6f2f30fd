"""Copies of this checkout, in which a test may change, build and commit what it likes."""

import shutil
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
_COMMITTER = ("-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "core.hooksPath=/dev/null")


def files() -> list[str]:
    """The files of this checkout that are in git, or would be with the next `git add`: sorted, relative, with /."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=30,
    ).stdout  # fmt: skip
    return sorted(name for name in set(listed.split("\0")) if name and (REPOSITORY / name).is_file())


def copy_of_the_repository(to: Path, without: tuple[str, ...] = ()) -> None:
    """Copy these files to a folder and commit them there, in a repository of its own. `without`: the folders that stay
    behind, each with a / at its end."""
    for name in files():
        if not name.startswith(without):
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, to / name)
    for command in (["init", "--quiet"], ["add", "--all"], [*_COMMITTER, "commit", "--quiet", "--message", "copy"]):
        subprocess.run(["git", *command], cwd=to, check=True, timeout=30)
