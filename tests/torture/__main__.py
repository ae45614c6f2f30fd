"""The torture: ticket servers draw while databases, links and the servers themselves fail at random; a judge reads all.

    python -m tests.torture --engine mariadb --seconds 300

Exit status 1: a promise of the contract was broken, and the report says which one. Everything that was started ends
with this process, and its files go. The same seed brings the same faults, at other moments.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from app.service import boot_clock
from tests.torture.faults import Faults
from tests.torture.judge import Judge
from tests.torture.stage import Stage

SERVES, SETTLES = 30.0, 90.0
"""Seconds after a fault within which every ticket server serves again, and sees all databases without a warning."""
NOTICED = 3.0
"""Seconds after a fault after which a ticket server's word counts: by then it has looked at every database."""
SILENCE = 5.0
"""Seconds for which no server hands out a ticket at most: at any time there is one that reaches a database."""


class Torture:
    """One run on one stage. seconds: how long. kills: if not 0, kill a database so many times, and do nothing else."""

    def __init__(self, stage: Stage, judge: Judge, chance: random.Random, seconds: float, kills: int) -> None:
        self._stage, self._judge, self._chance = stage, judge, chance
        self._seconds, self._kills = seconds, kills
        self._faults = Faults(stage, chance)
        self.done: Counter[str] = Counter()
        self.begin = self.end = boot_clock()

    async def play(self) -> None:
        """Do faults until the time is over, or the kills are done; then end the ticket servers."""
        settled = await self._recovers(self.begin, "the start")
        self.begin = boot_clock()
        while self.done.total() < self._kills or (not self._kills and boot_clock() < self.begin + self._seconds):
            await asyncio.sleep(self._chance.uniform(0, 2))
            settled = await self._do_one(settled)
        await self._recovers(boot_clock(), "the last fault")
        self.end = boot_clock()
        for worker in self._stage.workers:
            if (status := await worker.end(clean=True)) != 0:
                self._judge.violate("a clean end", f"{worker.name} ended with status {status}")
        for errors in sorted(self._stage.folder.glob("*.errors")):
            if "Traceback" in (text := errors.read_text(encoding="utf-8", errors="replace")):
                self._judge.violate("no defect", f"{errors.stem}:\n{text[-3000:]}")

    async def _do_one(self, settled: bool) -> bool:
        """Do one fault. settled: whether data may go back now; returns whether it may afterwards."""
        faults, before = self._faults, self._stage.lives()
        choice = faults.backwards if settled and self._chance.random() < 0.6 else faults.steady
        fault = self._chance.choice([faults.kill_database] if self._kills else choice)
        words = f"{fault.__name__}, {await fault()}"
        ended = boot_clock()
        self.done[fault.__name__] += 1
        await self._serves(ended, words)
        answers = sum(worker.said.get("answers", 0) for worker in self._stage.workers)
        print(f"{ended - self.begin:6.1f} s  {words}; running servers gave {answers:,} answers", flush=True)
        if self._kills or (fault not in faults.backwards and self._chance.random() < 0.5):
            return False
        if fault in faults.replacing:
            await self._stage.wait(lambda: not before & self._stage.lives(), SETTLES)
        return await self._recovers(ended + NOTICED, words)

    async def _recovers(self, since: float, words: str) -> bool:
        """Wait until all databases are in sight of every ticket server, and none warns."""
        await self._serves(since, words)
        workers, lives = self._stage.workers, self._stage.lives
        return await self._holds(
            "recovery", lambda: len(lives()) == 1 and all(each.is_settled(since) for each in workers), SETTLES, words
        )

    async def _serves(self, since: float, words: str) -> None:
        workers = self._stage.workers
        await self._holds("service", lambda: all(each.serves(since) for each in workers), SERVES, words)

    async def _holds(self, rule: str, condition: Callable[[], bool], seconds: float, words: str) -> bool:
        held = await self._stage.wait(condition, seconds)
        if not held:
            states = "; ".join(f"{each.name} {each.said or each.process}" for each in self._stage.workers)
            self._judge.violate(rule, f"not within {seconds:.0f} s of {words}: {states}")
        return held


async def run(chosen: argparse.Namespace, folder: Path) -> bool:
    """Play, judge and report. Returns whether every promise was kept."""
    print(f"torture of {chosen.engine}, seed {chosen.seed}", flush=True)
    databases = 2 if chosen.engine == "sqlite" else chosen.databases
    judge = Judge(folder, databases)
    async with Stage(folder) as stage:
        await stage.open(chosen.engine, databases, 1 if chosen.engine == "sqlite" else chosen.servers)
        torture = Torture(stage, judge, random.Random(chosen.seed), chosen.seconds, chosen.kills)
        await torture.play()
    judge.judge()
    silence = judge.longest_silence(torture.begin, torture.end)
    if silence > SILENCE and (chosen.kills or len(stage.workers) > 2):
        judge.violate("availability", f"no ticket for {silence:.2f} s, while one database could write")
    rows = {
        "ids": f"{judge.ids:,}, {judge.unprotected:,} of them unprotected, {judge.excused:,} of these twice",
        "bumps answered": judge.bumps,
        "seconds": f"{torture.end - torture.begin:.0f}",
        "longest time without a ticket": f"{silence:.2f} s",
        "errors that callers got": dict(+judge.errors),
        "faults": f"{torture.done.total()} {dict(torture.done)}",
        "violations": f"{judge.violations.total()} {dict(+judge.violations)}",
    }
    for name, value in rows.items():
        print(f"{name:30} {value}")
    return judge.ids > 0 and not judge.violations.total()


def main() -> int:
    """Read the arguments, run, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--engine", choices=["mariadb", "mysql", "postgresql", "sqlite"], default="mariadb")
    add("--seconds", type=float, default=300.0, help="how long faults are begun; 300")
    add("--seed", type=int, default=random.randrange(1_000_000), help="decides the faults; random")
    add("--databases", type=int, default=2, help="how many ticket databases; 2, as always with sqlite")
    add("--servers", type=int, default=3, help="how many ticket servers, 32 callers each; 3, and 1 with sqlite")
    add("--kills", type=int, default=0, metavar="K", help="kill a database K times, and do nothing else")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tickets-torture-") as folder:
        return 0 if asyncio.run(run(chosen, Path(folder))) else 1


if __name__ == "__main__":
    sys.exit(main())
