"""The torture: ticket servers draw while databases, links and the servers themselves fail at random; a judge sees all.

    python -m tests.torture --engine mariadb --seconds 300

Exit status 1: a promise of the contract was broken, and the report says which one. Everything that was started ends
with this process, and its files go. The same seed brings the same faults, at other moments.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx

from tests.load import SEQUENCES, Load
from tests.servers import Engine
from tests.torture.faults import Faults
from tests.torture.stage import Stage

SILENCE, GROWTH = 5.0, 25.0
"""Seconds for which no server hands out a ticket at most: at any time there is one that reaches a database. The second
number is for changes of the ring that are left undecided for 5 s, while the database that decides may be away."""
GROWS: list[Engine] = ["mariadb", "postgresql", "redis"]
"""The databases of a ring that changes between two and three."""
BUMP_SECONDS = 10.0
"""Mean seconds between two bumps."""


def play(chosen: argparse.Namespace, stage: Stage, faults: Faults, load: Load, chance: random.Random) -> Counter[str]:
    """Do faults until the time is over, or the kills are done, and return how many. Raises TimeoutError."""
    done: Counter[str] = Counter()
    stage.recover(load)
    load.silence, begin, settled = 0.0, time.monotonic(), True
    while done.total() < chosen.kills or (not chosen.kills and time.monotonic() < begin + chosen.seconds):
        time.sleep(chance.uniform(0, 2))
        backwards = settled and chance.random() < 0.6
        choice = faults.backwards if backwards else faults.steady
        only = [faults.kill_database] * bool(chosen.kills) + [faults.grow] * chosen.grow
        fault = chance.choice(only or choice)
        number = chance.randrange(6)
        print(f"{time.monotonic() - begin:6.1f} s  {fault.__name__} {number}, {load.count:,} tickets", flush=True)
        fault(number)
        done[fault.__name__] += 1
        if settled := not chosen.kills and (backwards or chance.random() < 0.5):
            stage.recover(load)
    stage.recover(load)
    return done


def bump(stage: Stage, load: Load, is_over: threading.Event) -> None:
    """Bump a sequence now and then, at some server; the bump counts if it is answered."""
    while not is_over.wait(random.expovariate(1 / BUMP_SECONDS)):
        server, sequence = random.choice(stage.servers), random.choice(SEQUENCES)
        above = load.highest[sequence] + random.randint(1, 20_000)
        with suppress(httpx.TransportError):
            if server.request("POST", f"/sequence/{sequence}/bump", json={"above": above}).status_code == 200:
                load.floors[sequence] = max(above, load.floors[sequence])


def run(chosen: argparse.Namespace, folder: Path) -> bool:
    """Play, judge and report. Returns whether every promise was kept."""
    chance, is_over = random.Random(chosen.seed), threading.Event()
    engines = GROWS if chosen.grow else [] if chosen.engine == "sqlite" else [chosen.engine] * 2
    # while the ring changes, no id says which database gave it
    judge: dict[str, Any] = {"increment": 1, "is_one": False} if chosen.grow else {}
    print(f"torture of {engines or chosen.engine}, seed {chosen.seed}", flush=True)
    with ExitStack() as stack:
        stage = Stage(stack, engines)
        load = stack.enter_context(Load(*stage.servers, callers=chosen.callers, mixed=True, **judge))
        bumps = threading.Thread(target=bump, args=(stage, load, is_over))
        bumps.start()
        done = Counter[str]()
        try:
            done = play(chosen, stage, Faults(stage, chance, folder), load, chance)
        except (TimeoutError, RuntimeError) as error:
            load.violate(f"{error}: {[server.log[-1000:] for server in stage.servers]}")
        is_over.set()
        bumps.join()
        for server in stage.servers:
            if "Traceback" in server.log:
                load.violate(f"a defect: {server.log[-3000:]}")
    if load.silence > (GROWTH if chosen.grow else SILENCE) and (chosen.kills or len(stage.servers) > 2):
        load.violate(f"no ticket for {load.silence:.2f} s, while one database could write")
    print(f"tickets {load.count:,}; bumps {load.floors}; longest time without a ticket {load.silence:.2f} s")
    print(f"errors that callers got {load.errors.most_common(10)}")
    print(f"faults {done.total()} {dict(done)}")
    print(*load.violations, f"violations {len(load.violations)}", sep="\n")
    return load.count > 0 and not load.violations


def main() -> int:
    """Read the arguments, run, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--engine", choices=["mariadb", "mysql", "postgresql", "redis", "sqlite"], default="mariadb")
    add("--seconds", type=float, default=300.0, help="how long faults are begun; 300")
    add("--seed", type=int, default=random.randrange(1_000_000), help="decides the faults; random")
    add("--callers", type=int, default=16, help="how many callers each ticket server has; 16")
    add("--kills", type=int, default=0, metavar="K", help="kill a database K times, and do nothing else")
    add("--grow", action="store_true", help="change a ring of three engines, and kill `ticketd grow` and others")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tickets-torture-") as folder:
        return 0 if run(chosen, Path(folder)) else 1


if __name__ == "__main__":
    sys.exit(main())
