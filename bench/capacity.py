"""`python -m bench.capacity`: what a ticket, a connection and a crash cost, for docs/capacity.md.

It starts two ticket databases with binary logs, and ticket servers on them; all of it listens on 127.0.0.1 and is ended
with the run. The figures go to bench/results/capacity.json, and from there into the page.
"""

import argparse
import datetime
import platform
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from app.common.version import VERSION
from bench import capacity_page, costs, machine, runner
from bench.databases import description
from bench.model import CaseFailed, Missing
from bench.stage import Stage
from docs.generator.blocks import NoBlock

ROOT = Path(__file__).parent.parent


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write the page. Returns the exit status: 0 if everything could be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench.capacity", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10, help="for each way of asking and each crash (default 10)")
    options = parser.parse_args(arguments)
    progress = runner.Progress()
    busy = machine.busy()
    if busy:
        progress.say(busy)
    stage = Stage(progress.say, many_sequences=False, binary_log=True)
    try:
        capacity_page.page(ROOT)  # raises now, and not after minutes, if the page lacks the place for its figures
        data = _measured(stage, options.seconds, busy, progress)
    except (CaseFailed, Missing, NoBlock) as error:
        progress.say(str(error))
        return 1
    finally:
        stage.close()
    capacity_page.publish(data, ROOT)
    progress.say(f"written: {capacity_page.PAGE}, {capacity_page.RESULTS}")
    return 0


def _measured(stage: Stage, seconds: float, busy: str, progress: runner.Progress) -> capacity_page.Data:
    """Everything that the page shows. Crashes come before the servers that stay, because each running server makes a
    database that came back skip ids."""
    engine = stage.engine
    hardware = machine.hardware(stage.directory)
    connections = costs.of_connections(stage, seconds, progress.say)
    crashes = costs.of_crashes(stage, seconds, progress.say)
    tickets = costs.of_tickets(stage, seconds, progress.say)
    return {
        "version": VERSION,
        "engine": f"{'MariaDB' if engine.is_mariadb else 'MySQL'} {re.sub(r'[-+].*', '', engine.version)}",
        "command": shlex.join(["python", "-m", "bench.capacity", *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "python": platform.python_version(),
        "busy": busy,
        "hardware": hardware,
        "database_settings": description(binary_log=True),
        "connections": asdict(connections),
        "crashes": [asdict(cost) for cost in crashes],
        "tickets": [asdict(cost) for cost in tickets],
    }


if __name__ == "__main__":
    sys.exit(main())
