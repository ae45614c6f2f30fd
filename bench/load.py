"""The programs that ask a server as fast as it answers: wrk, redis-benchmark and pgbench."""

import csv
import json
import re
import shutil
import subprocess
from pathlib import Path

from bench import CaseFailed
from bench.case import Sample
from tests.servers_programs import program as pg_program

_SCRIPT = Path(__file__).with_name("load.lua")
_NEXTVAL = Path(__file__).with_name("nextval.sql")
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


def wrk(url: str, connections: int, seconds: int, mode: str = "alike") -> Sample:
    """Return the requests a second that wrk sends to a URL, and its latencies. `mode`: see load.lua.

    Raises CaseFailed where a request failed, or was refused.
    """
    command = [program("wrk", "wrk"), "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout=10s", "-s", str(_SCRIPT)]
    said = _run([*command, url, "--", mode], seconds)
    found = next((line for line in said.splitlines() if line.startswith("RESULT ")), None)
    if found is None:
        raise CaseFailed(f"wrk said {said.strip()[-300:]}")
    result = json.loads(found.removeprefix("RESULT "))
    if result["bad"] or not result["requests"]:
        raise CaseFailed(f"{result['bad']} of {result['requests']} requests to {url} failed")
    return Sample(result["requests"] / result["microseconds"] * 1e6, result["p50"] / 1000, result["p99"] / 1000)


def redis_benchmark(port: int, connections: int, pipeline: int, seconds: int) -> Sample:
    """Return the INCRs a second that redis-benchmark sends; `pipeline`: how many each connection sends at once."""
    how = "-p", str(port), "-c", str(connections), "-P", str(pipeline), "--csv"
    command = [program("redis-benchmark", "redis-tools"), *how]
    rate = _rates[how] if how in _rates else _incrs(command, _FIRST * pipeline, seconds).value
    sample = _incrs(command, max(1_000, int(rate * seconds)), seconds)
    _rates[how] = sample.value
    return sample


def _incrs(command: list[str], count: int, seconds: int) -> Sample:
    said = _run([*command, "-n", str(count), "INCR", "photos"], seconds)
    rows = list(csv.reader(line for line in said.splitlines() if line.startswith('"')))
    if len(rows) < 2:
        raise CaseFailed(f"redis-benchmark said {said.strip()[-300:]}")
    found = dict(zip(*rows[:2], strict=True))
    return Sample(float(found["rps"]), float(found["p50_latency_ms"]), float(found["p99_latency_ms"]))


def pgbench(url: str, connections: int, seconds: int) -> Sample:
    """Return the durable values a second that pgbench draws from the sequence photos of a PostgreSQL database."""
    whole = seconds + 1  # it connects in this time as well, which its rate leaves out
    command = [pg_program("postgresql", "pgbench"), "-n", "-Mprepared", f"-c{connections}", f"-T{whole}"]
    said = _run([*command, f"-f{_NEXTVAL}", url], seconds)
    found = re.search(r"^tps = ([0-9.]+)", said, re.MULTILINE)
    if found is None:
        raise CaseFailed(f"pgbench said {' '.join(said.split())[-300:]}")
    return Sample(float(found[1]))


def _run(command: list[str], seconds: int) -> str:
    wait = seconds + _LONGEST_WAIT
    try:
        said = subprocess.check_output(command, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, timeout=wait)
    except subprocess.SubprocessError as error:
        raise CaseFailed(str(error)) from error
    return said.decode("utf-8", "replace")
