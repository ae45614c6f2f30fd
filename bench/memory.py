"""The server's memory as it grows with sequences and tickets, or does not."""

from collections.abc import Callable
from dataclasses import dataclass

from bench import wrk
from bench.databases import SEQUENCES
from bench.model import CaseFailed
from bench.stage import Stage

NAME = "memory"
MILLIONS = 4


@dataclass(frozen=True, slots=True)
class Reading:
    """Resident memory in MiB, and after what."""

    after: str
    mebibytes: float


def measure(stage: Stage, seconds: float, million: int, say: Callable[[str], None]) -> list[Reading]:
    """A server of its own: its memory after 1, 100 and 1,000 sequences, and after one million tickets after the other.

    `million` is how many make one.
    """
    readings: list[Reading] = []

    def read(after: str) -> None:
        readings.append(Reading(after, server.resident))
        say(f"memory {after}: {server.resident:.1f} MiB")

    with stage.fresh_server() as server:
        read("at the start")
        drawn = 0.0
        for count in (1, 100, SEQUENCES):
            drawn += _drawn(server.port, "", 64, seconds, tickets=1, sequences=count)
            read(f"after {count:,} sequence{'s' if count > 1 else ''}")
        for number in range(1, MILLIONS + 1):
            for _ in range(600):
                if drawn >= number * million:
                    break
                # half by requests as small as they come, half by larger ones, on all sequences
                drawn += _drawn(server.port, "", 64, 1, tickets=1, sequences=SEQUENCES)
                drawn += _drawn(server.port, "?count=100", 16, 1, tickets=100, sequences=SEQUENCES)
            else:
                raise CaseFailed(f"{number * million} tickets took too long")
            read(f"after {number * million:,} tickets")
    return readings


def growth(readings: list[Reading]) -> float:
    """MiB between the first million tickets and the last."""
    return readings[-1].mebibytes - readings[-MILLIONS].mebibytes


def _drawn(port: int, query: str, connections: int, seconds: float, *, tickets: int, sequences: int) -> float:
    return wrk.measure([port], query, connections, seconds, tickets=tickets, sequences=sequences).rate * seconds
