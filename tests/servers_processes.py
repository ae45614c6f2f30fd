"""Processes, ports and waiting, for the servers that tests start."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

_GUARD = r"""
read -r _
children=$(grep -ls "^PPid:[[:space:]]*$0\$" /proc/[0-9]*/status | cut -d/ -f3)
kill -KILL "$0" $children
rm -rf "$1"
"""
_given: set[int] = set()


def guard(pid: int, home: Path) -> subprocess.Popen[bytes]:
    """Start a shell that waits for the end of the test run, however the run ends.

    Then it kills a process with its children, because a frozen child does not notice that, and removes its files.
    """
    return subprocess.Popen(
        ["/bin/sh", "-c", _GUARD, str(pid), home],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def end_guard(shell: subprocess.Popen[bytes]) -> None:
    """End a shell of `guard` before it does anything."""
    shell.kill()
    shell.wait()
    if shell.stdin is not None:
        shell.stdin.close()


def family(pid: int) -> list[int]:
    """The process, then its children. Each child of PostgreSQL leads a process group of its own."""
    found = [pid]
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if int(_fields(stat)[1]) == pid:
                found.append(int(stat.parent.name))
    return found


def states(pid: int) -> set[str]:
    """The states of a process's threads, as /proc names them; none if the process has ended."""
    found = set()
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.add(_fields(stat)[0])
    return found - {"Z", "X"}


def _fields(stat: Path) -> list[str]:
    """The fields of a stat file that follow the process's name, which may contain anything."""
    return stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process, unless the process has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Return as soon as the condition holds. Raises TimeoutError, with `what` in it, after so many seconds."""
    deadline = time.monotonic() + seconds
    pause = 0.01
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s for {what}")
        time.sleep(pause)
        pause = min(pause * 1.3, 0.1)


def free_port() -> int:
    """A free port of 127.0.0.1 that this process has not given out before.

    The kernel takes the ports of outgoing connections from a range, and this port lies below that range. Otherwise a
    client could take the port of a killed server, or connect to itself there.
    """
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    for _ in range(1000):
        port = random.randrange(10_000, lowest if lowest > 12_000 else 32_768)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if port not in _given:
                probe.bind(("127.0.0.1", port))
                _given.add(port)
                return port
    raise RuntimeError("found no free port on 127.0.0.1")
