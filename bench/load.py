"""The programs that ask a server as fast as it answers: wrk over HTTP, redis-benchmark over the Redis protocol."""

import csv
import json
import math
import shutil
import subprocess
from pathlib import Path

from bench import CaseFailed

_SCRIPT = Path(__file__).with_name("load.lua")
_LONGEST_WAIT = 60.0
"""Seconds that a program may take longer than it was told."""
_FIRST = 2_000
"""Commands with which redis-benchmark finds out how many make so many seconds."""
_rates: dict[tuple[str, ...], float] = {}


def program(name: str, package: str) -> str:
    """Return the path of a program. Raises CaseFailed, with the Debian package to install."""
    path = shutil.which(name, path="/usr/local/bin:/usr/bin:/bin:/usr/sbin:/usr/local/sbin") or shutil.which(name)
    if path is None:
        raise CaseFailed(f"{name} is not installed: .ci/debian-packages {name}:{package}, or apt-get install {package}")
    return path


def wrk(url: str, connections: int, seconds: float, mode: str = "alike") -> float:
    """Return the requests a second that wrk sends to a URL, over so many connections. `mode`: see load.lua.

    Raises CaseFailed where a request failed, or was refused.
    """
    whole = max(1, math.ceil(seconds))
    command = [program("wrk", "wrk"), "-t1", f"-c{connections}", f"-d{whole}s", "--timeout=10s", "-s", str(_SCRIPT)]
    said = _run([*command, url, "--", mode], whole)
    found = next((line for line in said.splitlines() if line.startswith("RESULT ")), None)
    if found is None:
        raise CaseFailed(f"wrk said {said.strip()[-300:]}")
    result = json.loads(found.removeprefix("RESULT "))
    if result["bad"] or not result["requests"]:
        raise CaseFailed(f"{result['bad']} of {result['requests']} requests to {url} failed")
    return float(result["requests"] / result["microseconds"] * 1e6)


def redis_benchmark(port: int, connections: int, pipeline: int, seconds: float) -> float:
    """Return the INCRs a second that redis-benchmark sends; `pipeline`: how many each connection sends at once."""
    how = "-p", str(port), "-c", str(connections), "-P", str(pipeline), "--csv"
    command = [program("redis-benchmark", "redis-tools"), *how]
    rate = _rates[how] if how in _rates else _incrs(command, _FIRST * pipeline, seconds)
    _rates[how] = _incrs(command, max(1_000, int(rate * seconds)), seconds)
    return _rates[how]


def _incrs(command: list[str], count: int, seconds: float) -> float:
    said = _run([*command, "-n", str(count), "INCR", "photos"], seconds)
    rows = list(csv.reader(line for line in said.splitlines() if line.startswith('"')))
    if len(rows) < 2:
        raise CaseFailed(f"redis-benchmark said {said.strip()[-300:]}")
    return float(dict(zip(*rows[:2], strict=True))["rps"])


def _run(command: list[str], seconds: float) -> str:
    wait = seconds + _LONGEST_WAIT
    try:
        said = subprocess.check_output(command, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, timeout=wait)
    except subprocess.SubprocessError as error:
        raise CaseFailed(str(error)) from error
    return said.decode("utf-8", "replace")
