"""Programs that are run, and what they say."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench.model import CaseFailed, Missing


def run(command: Sequence[str | Path], seconds: float, **options: str | Path) -> str:
    """A program's standard output; CaseFailed where it fails or takes longer."""
    try:
        done = subprocess.run(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
            cwd=options.get("cwd"),
        )
    except subprocess.TimeoutExpired:
        raise CaseFailed(f"{command[0]} did not end within {seconds:.0f} s") from None
    if done.returncode != 0:
        raise CaseFailed(f"{command[0]} failed: {done.stdout.strip()[-300:]}")
    return done.stdout


def program(name: str, package: str, folders: Sequence[str] = ()) -> str:
    """Where a program lies; Missing, with its Debian package, where it does not."""
    path = shutil.which(name, path=os.pathsep.join([*folders, os.environ.get("PATH", os.defpath), "/usr/sbin"]))
    if path is None:
        raise Missing(f"{name} is not installed (Debian, Ubuntu: apt-get install {package})")
    return path
