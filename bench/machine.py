"""The machine and the software that the figures were measured on."""

import os
import platform
import re
import shutil
import subprocess
import time
from importlib import metadata
from pathlib import Path

from app.common.version import VERSION

_TICK = os.sysconf("SC_CLK_TCK")
BUSY_SHARE = 0.5
"""The load average for each processor from which on the machine is too busy for a run."""
_PACKAGES = ("fastapi", "starlette", "uvicorn", "uvloop", "httptools", "aiomysql", "pymysql", "pydantic")


def hardware(directory: Path) -> dict[str, str]:
    """The machine; `directory` is where the databases' data lie."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": _memory(),
        "data on": filesystem(directory),
        "one fdatasync of 512 bytes": f"{_flush(directory) * 1000:.2f} ms (median of 200)",
        "load average at the start": f"{os.getloadavg()[0]:.1f}",
        "system": f"{_distribution()}, Linux {platform.release()}",
    }


def busy() -> str:
    """A warning if the machine is doing something else already; else the empty string."""
    load = os.getloadavg()[0]
    if load < BUSY_SHARE * (os.cpu_count() or 1):
        return ""
    return f"the machine was busy when the run began: its load average was {load:.1f}"


def used_seconds() -> float:
    """The processor time, in seconds since the machine started, that all processes have used, and that other virtual
    machines have taken from this one."""
    fields = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0].split()[1:]
    user, nice, system, stolen = (int(fields[number]) for number in (0, 1, 2, 7))
    return (user + nice + system + stolen) / _TICK


def versions() -> dict[str, str]:
    """The programs and packages at work, the ticket server's own release first."""
    found = {"ticket server": VERSION, "Python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    if wrk := _said("wrk", "-v"):
        found["wrk"] = wrk.split()[1].removeprefix("debian/")
    return found


def filesystem(path: Path) -> str:
    """The kind of file system that a directory lies on."""
    best, kind = "", "unknown"
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return kind
    for line in mounts.splitlines():
        _device, where, what = line.split()[:3]
        if (path == Path(where) or Path(where) in path.parents) and len(where) >= len(best):
            best, kind = where, what
    return kind


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.machine()


def _memory() -> str:
    found = re.search(r"^MemTotal:\s*(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
    return f"{int(found[1]) / 1024**2:.0f} GiB" if found else "unknown"


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def _flush(directory: Path) -> float:
    """The median time, in seconds, of a flush to the disk; every durable commit waits for at least one."""
    took = []
    path = directory / "flush"
    with path.open("wb", buffering=0) as file:
        for _ in range(200):
            file.write(b"\0" * 512)
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    path.unlink()
    return sorted(took)[100]


def _said(*command: str) -> str:
    """The first line that a program says, or nothing where it is missing or fails to say any."""
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=10, check=False)
    return done.stdout.partition("\n")[0]
