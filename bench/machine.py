"""The machine and the programs of a run, and whether anything else runs on it."""

import contextlib
import datetime
import os
import platform
import re
import statistics
import subprocess
import time
from importlib import metadata
from pathlib import Path

from app.version import VERSION
from bench import CaseFailed
from bench.load import program

_PACKAGES = ("uvicorn", "httptools", "uvloop", "hiredis", "fastapi", "ticketd-client")
_PROGRAMS = {"wrk": "-v", "nginx": "-v", "redis-server": "--version", "pgbench": "--version"}
_TICK = os.sysconf("SC_CLK_TCK")
_KERNEL_THREAD = 0x00200000
"""The kernel's flag PF_KTHREAD of a process."""
_FLUSHES, _FLUSHED = 100, 512


def facts(data: Path) -> dict[str, str]:
    """Return what figures depend on. data: where the databases' files are."""
    cpu = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    found = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{os.cpu_count()} cores ({cpu[1] if cpu else platform.machine()}), {memory:.0f} GiB of memory",
        "system": f"Linux {platform.release()}",
        "load average before": f"{os.getloadavg()[0]:.2f}",
        "data on": filesystem(data),
        "one flush to the disk": f"{1000 * _flush(data):.2f} ms",
        "ticket server": VERSION,
        "Python": platform.python_version(),
    }
    found |= {package: metadata.version(package) for package in _PACKAGES}
    return found | {name: _version(name, flag) for name, flag in _PROGRAMS.items()}


def filesystem(path: Path) -> str:
    """Return the kind of file system that a folder lies on."""
    best, kind = Path("/"), "unknown"
    for line in Path("/proc/mounts").read_text(encoding="utf-8", errors="replace").splitlines():
        _, where, what = line.split()[:3]
        if path.is_relative_to(where) and Path(where).is_relative_to(best):
            best, kind = Path(where), what
    return kind


def _flush(folder: Path) -> float:
    """Return the seconds of a flush, the median: a durable commit waits for one at least."""
    took = []
    path = folder / "flush"
    with path.open("wb", buffering=0) as file:
        for _ in range(_FLUSHES):
            file.write(bytes(_FLUSHED))
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    path.unlink()
    return statistics.median(took)


def _version(name: str, flag: str) -> str:
    try:
        path = program(name, name)
    except CaseFailed:
        return "not installed"
    done = subprocess.run([path, flag], capture_output=True, text=True, timeout=10, check=False)
    found = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    return found[0] if found else "unknown"


class Calibration:
    """A loop that does the same work before each measurement, while nothing is asked of any server.

    On a machine that does nothing else the loop takes as long each time, and only this process, what it started and
    the kernel use a processor meanwhile: databases go on writing after a measurement.
    """

    def __init__(self) -> None:
        self.took: list[float] = []
        """Seconds that each loop took."""
        self._others = self._elapsed = 0.0

    def run(self) -> None:
        """Run the loop once."""
        before, others = time.perf_counter(), _others()
        began = time.perf_counter()
        for _ in range(1_000_000):
            pass
        self.took.append(time.perf_counter() - began)
        time.sleep(0.1)  # the counters of the system are coarse
        elapsed = time.perf_counter() - before
        most = elapsed * (os.cpu_count() or 1)  # or the end of a kernel's thread would count as all that it ever used
        self._elapsed += elapsed
        self._others += min(max(_others() - others, -most), most)

    @property
    def others(self) -> float:
        """The processors that other programs and other virtual machines used meanwhile, on average."""
        return max(0.0, self._others / self._elapsed) if self._elapsed else 0.0


def _others() -> float:
    """Seconds of processor time that other programs have used, and that other virtual machines have taken.

    This process, what it started directly or not, and the kernel's threads and interrupts do not count.
    """
    children: dict[int, list[int]] = {}
    used = {}
    kernel = set()
    total = Path("/proc/stat").read_text(encoding="ascii").split()[1:9]
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            # behind the process's name, which may contain anything
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            pid = int(path.parent.name)
            children.setdefault(int(fields[1]), []).append(pid)
            used[pid] = sum(map(int, fields[11:15]))  # its own time, and that of children which have ended
            if int(fields[6]) & _KERNEL_THREAD:
                kernel.add(pid)
    ours = [os.getpid()]
    for pid in ours:
        ours += children.get(pid, [])
    user, nice, system, _idle, _waiting, _interrupts, _softirqs, stolen = map(int, total)
    return (user + nice + system + stolen - sum(used[pid] for pid in kernel.union(ours))) / _TICK
