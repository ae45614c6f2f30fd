"""redis-benchmark: Redis' own load generator, against whatever speaks its protocol."""

from functools import cache

from bench.model import CaseFailed, Sample
from bench.programs import program, run

FIRST = 3_000
"""Commands of the first run of a kind, which finds out how many make so many seconds."""


class RedisBenchmark:
    """One command, again and again, on one server. It takes a number of commands, not a time. `asked`: how many there
    have been."""

    def __init__(self, port: int, *words: str) -> None:
        self._command = [_program(), "-h", "127.0.0.1", "-p", str(port), "--csv"]
        self._words = words
        self.asked = 0
        self._rates: dict[tuple[int, int], float] = {}

    def measure(self, connections: int, pipeline: int, seconds: float) -> Sample:
        """`pipeline`: commands that each connection sends at once."""
        kind = connections, pipeline
        if kind not in self._rates:
            self._rates[kind] = self._run(*kind, FIRST * pipeline)["rps"]
        found = self._run(*kind, max(1000, int(self._rates[kind] * seconds)))
        self._rates[kind] = found["rps"]
        return Sample(found["rps"], found["p50_latency_ms"], found["p99_latency_ms"])

    def _run(self, connections: int, pipeline: int, count: int) -> dict[str, float]:
        how = ["-c", str(connections), "-P", str(pipeline), "-n", str(count), *self._words]
        said = run([*self._command, *how], 120)
        self.asked += count
        lines = [line for line in said.splitlines() if line.startswith('"')]
        if len(lines) < 2:
            raise CaseFailed(f"redis-benchmark said {said.strip()[-300:]}")
        names, values = ([word.strip('"') for word in line.split('","')] for line in lines[:2])
        return {name: float(value) for name, value in zip(names[1:], values[1:], strict=True)}


@cache
def _program() -> str:
    return program("redis-benchmark", "redis-tools")
