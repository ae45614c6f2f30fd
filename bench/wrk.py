"""HTTP load by wrk: https://github.com/wg/wrk."""

import json
import math
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench.model import CaseFailed, Missing, Sample

_HERE = Path(__file__).parent


def program() -> str:
    """Where wrk is."""
    path = shutil.which("wrk")
    if path is None:
        raise Missing("wrk is not installed (Debian, Ubuntu: apt-get install wrk)")
    return path


class Wrk:
    """One running wrk."""

    def __init__(
        self, port: int, path: str, connections: int, seconds: float, *, sequences: int = 0, unlike: bool = False
    ) -> None:
        """`sequences`: the paths of so many sequences at random, and `path` is the query after each.

        `unlike`: no two requests are the same.
        """
        script = _HERE / ("wrk_sequences.lua" if sequences else "wrk_unlike.lua" if unlike else "wrk.lua")
        target = "/" if sequences else path
        arguments = ["--", str(sequences), path] if sequences else []
        self._whole_seconds = max(1, math.ceil(seconds))
        self._process = subprocess.Popen(
            [
                program(),
                "--threads=1",
                f"--connections={connections}",
                f"--duration={self._whole_seconds}s",
                "--timeout=10s",
                f"--script={script}",
                f"http://127.0.0.1:{port}{target}",
                *arguments,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def result(self, tickets: int) -> Sample:
        """Wait for its end; every good answer carried so many tickets."""
        try:
            said, _ = self._process.communicate(timeout=self._whole_seconds + 30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise CaseFailed("wrk did not end") from None
        except BaseException:
            self._process.kill()
            raise
        lines = [line for line in said.splitlines() if line.startswith("RESULT ")]
        if not lines:
            raise CaseFailed(f"wrk failed: {said.strip()[-300:]}")
        found = json.loads(lines[0].removeprefix("RESULT "))
        good = found["requests"] - found["status"]
        if good <= 0:
            raise CaseFailed(f"no request succeeded: {found['status']} error answers, {found['failed']} failures")
        bad = found["status"] + found["failed"]
        return Sample(
            good * tickets / found["microseconds"] * 1e6,
            found["p50"] / 1000,
            found["p99"] / 1000,
            {"failed requests": bad} if bad else {},
        )


def measure(
    ports: Sequence[int],
    path: str,
    connections: int,
    seconds: float,
    *,
    tickets: int = 1,
    sequences: int = 0,
    unlike: bool = False,
) -> Sample:
    """The connections are shared out among the ports, a wrk each; rates add up, the slower latency counts."""
    each = connections // len(ports)
    running = [Wrk(port, path, each, seconds, sequences=sequences, unlike=unlike) for port in ports]
    samples = [wrk.result(tickets) for wrk in running]
    bad = sum(sample.counts.get("failed requests", 0) for sample in samples)
    return Sample(
        sum(sample.rate for sample in samples),
        max(sample.p50 or 0 for sample in samples),
        max(sample.p99 or 0 for sample in samples),
        {"failed requests": bad} if bad else {},
    )
