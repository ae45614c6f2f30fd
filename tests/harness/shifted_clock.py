"""A whole process under a clock that is wrong, by as much as a test says and when it says so."""

import functools
import mmap
import struct
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).parent / "native" / "shifted_clock.c"


@functools.cache
def _library() -> Path:
    """The shim, compiled once for each process of the tests."""
    directory = Path(tempfile.mkdtemp(prefix="tickets-clock-"))
    library = directory / "shifted_clock.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True, timeout=60)
    return library


class ShiftedClock:
    """The clock of one process: the machine's, shifted by `set`. `environment`: what the process is started with."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._file = tempfile.NamedTemporaryFile(prefix="tickets-clock-")  # noqa: SIM115 - it lives as long as this
        self._file.write(b"\0" * 8)
        self._file.flush()
        self._shift = mmap.mmap(self._file.fileno(), 8)
        self.set(seconds)
        self.environment = {"LD_PRELOAD": str(_library()), "SHIFTED_CLOCK": self._file.name}

    def set(self, seconds: float) -> None:
        """From now on it is so many seconds ahead of the machine's; below 0: behind."""
        self._shift[:8] = struct.pack("=q", round(seconds * 1e9))

    def close(self) -> None:
        """Its process has ended."""
        self._shift.close()
        self._file.close()

    def __enter__(self) -> "ShiftedClock":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
