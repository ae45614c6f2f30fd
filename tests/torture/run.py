"""The load, the schedule, the verdict and the figures."""

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence

from tests.harness.load import Load
from tests.harness.tally import Tally
from tests.torture.faults import COMMON_FAULTS, Fault
from tests.torture.ring_faults import RING_FAULTS
from tests.torture.stage import LONGEST_WAIT, MIX, SEQUENCES, Stage

FAULTS = (*COMMON_FAULTS, *RING_FAULTS)
CLIENTS = 12
LOG_SHOWN = 6000
"""How many characters of each server's log are shown after a violation."""
BUMP_SHARE = 0.1
"""How often a sequence is bumped before the next fault."""


RESERVES = (0.0, 0.0, 2.0, 10.0)
"""TICKETS_RESERVE_SECONDS: one of these, as the seed has it."""


class Torture:
    """One run."""

    def __init__(
        self,
        seconds: float,
        seed: int,
        databases: int = 2,
        only: Sequence[str] | None = None,
        *,
        worst_variables: bool = False,
    ) -> None:
        """`worst_variables`: the databases have the worst of the variables that an operator can set."""
        self._worst_variables = worst_variables
        self.seconds = seconds
        self.seed = seed
        self.databases = databases
        self.tally = Tally()
        self.struck: Counter[str] = Counter()
        self.bumps = 0
        self._faults = [fault for fault in FAULTS if not only or fault.name in only]
        self._chance = random.Random(seed)
        self._reserve = random.Random(f"{seed} reserve").choice(RESERVES)
        self._now = "starting"
        self._began = time.monotonic()
        self._over = threading.Event()
        self._logs: list[str] = []
        self._died: list[str] = []

    def run(self) -> int:
        """Torture, and say what came of it; the exit status."""
        print(
            f"torture for {self.seconds:g} s, {self.databases} databases, {self._reserve:g} s in reserve, "
            f"TORTURE_SEED={self.seed}",
            flush=True,
        )
        progress = threading.Thread(target=self._show_progress, daemon=True)
        progress.start()
        try:
            with Stage(
                self._chance,
                self.tally,
                self.databases,
                reserve_seconds=self._reserve,
                worst_variables=self._worst_variables,
            ) as stage:
                print(f"on {stage.engine.kind} {stage.engine.version}: {stage.engine.path}", flush=True)
                self._began = time.monotonic()
                with Load(
                    [server.address for server in stage.servers],
                    clients=CLIENTS,
                    mix=MIX,
                    timeout=LONGEST_WAIT + 6,
                    seed=self.seed,
                    record=self.tally.add,
                ):
                    self._torture(stage)
                self._died = stage.died
                if self.tally.violations:
                    for server in (*stage.pair, *stage.servers):
                        self._logs.append(f"the last words of {server.name}:\n{server.log_text()[-LOG_SHOWN:]}")
        finally:
            self._over.set()
            progress.join()
        self._report()
        return 1 if self.tally.violations else 0

    def _torture(self, stage: Stage) -> None:
        time.sleep(1)
        to_come = self._chance.sample(self._faults, len(self._faults))
        while time.monotonic() < self._began + self.seconds:
            fault = self._next(stage, to_come)
            self._now = fault.name
            self.struck[fault.name] += 1
            try:
                fault.strike(stage)
                stage.wait_until_well()
                if self._chance.random() < BUMP_SHARE:
                    self._bump(stage)
            except TimeoutError as error:
                self.tally.fail(f"not well again after “{fault.name}”: {error}")
                return
            stage.pause(0.1, 0.6)
        self._now = "the end"
        time.sleep(0.5)

    def _next(self, stage: Stage, to_come: list[Fault]) -> Fault:
        """Every kind has come, as soon as it could, before the lot decides alone."""
        for fault in to_come:
            if fault.fits(stage):
                to_come.remove(fault)
                return fault
        fitting = [fault for fault in self._faults if fault.fits(stage)]
        return self._chance.choices(fitting, [fault.weight for fault in fitting])[0]

    def _bump(self, stage: Stage) -> None:
        sequence, server = self._chance.choice(SEQUENCES), stage.a_server()
        found = server.get(f"/sequence/{sequence}").json()
        above = max(each["last"] or 0 for each in found["databases"]) + self._chance.randrange(1, 10_000)
        deadline = time.monotonic() + 15
        while (reply := server.post(f"/sequence/{sequence}/bump", json={"above": str(above)})).status != 200:
            # a table that was dropped may not be there again yet
            if reply.status != 503 or time.monotonic() > deadline:
                self.tally.fail(f"a bump of {sequence} was answered with {reply.status}: {reply.text[:300]}")
                return
            time.sleep(0.2)
        self.tally.bumped(sequence, above, time.monotonic())
        self.bumps += 1

    # -- what is shown

    def _show_progress(self) -> None:
        terminal = sys.stderr.isatty()
        while not self._over.wait(0.5 if terminal else 10):
            passed = time.monotonic() - self._began
            line = (
                f"{passed:5.0f} s  {self.tally.tickets:>11,} tickets  {self.struck.total():>4} faults  "
                f"{self.tally.violations} violations  {self._now}"
            )
            if terminal:
                print(f"\r{line[:110]:<110}", end="", file=sys.stderr, flush=True)
            else:
                print(line, file=sys.stderr, flush=True)
        if terminal:
            print(file=sys.stderr)

    def _report(self) -> None:
        tally = self.tally
        if tally.longest_wait > LONGEST_WAIT:
            tally.fail(f"a request took {tally.longest_wait:.1f} s")
        if not tally.tickets:
            tally.fail("not one ticket")
        passed = time.monotonic() - self._began
        print(f"\n{passed:.0f} s, {tally.requests:,} requests, {tally.tickets:,} tickets, {self.bumps} bumps")
        print(f"{self.struck.total()} faults:")
        for name, times in sorted(self.struck.items()):
            print(f"  {times:>4}  {name}")
        print(f"failed requests: {tally.failed.total()}{_kinds(tally.failed)}")
        print(
            f"failed requests of servers that were killed, stopped or frozen, or had no database: "
            f"{tally.excused.total()}{_kinds(tally.excused)}"
        )
        if self._died:
            print(f"databases that ended by themselves, and were started again: {'; '.join(self._died)}")
        print(f"longest wait of the others: {tally.longest_wait:.2f} s")
        print(f"violations: {tally.violations}")
        for words in [*tally.words, *self._logs]:
            print(f"  {words}")
        sys.stdout.flush()


def _kinds(counter: Counter[str]) -> str:
    return f" ({', '.join(f'{times} {kind}' for kind, times in counter.most_common())})" if counter else ""
