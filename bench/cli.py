"""The command line of the benchmark."""

import argparse
import datetime
import re
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from bench import machine, memory, plot, publication, report, runner, trust
from bench.case import Case
from bench.cases import CASES, GROWTH
from bench.claims import judge
from bench.model import CaseFailed, Missing
from bench.run_facts import Facts
from bench.stage import Stage
from docs.generator import blocks

ROOT = Path(__file__).parent.parent
_NAMES = [*(case.name for case in CASES), memory.NAME]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is chosen. Returns the exit status: 0 if everything that was asked for could be measured and, for a
    whole run, the figures were published."""
    options = _options(arguments)
    chosen = [case for case in CASES if not options.only or case.name in options.only]
    with_memory = not options.only or memory.NAME in options.only
    signal.signal(signal.SIGTERM, _stop)
    progress = runner.Progress()
    stage = Stage(progress.say, with_memory or any(case.group == GROWTH for case in chosen))
    try:
        return _run(stage, options, chosen, with_memory, progress)
    except KeyboardInterrupt:
        progress.say("interrupted; nothing is written")
        return 130
    except (Missing, blocks.NoBlock) as error:
        progress.say(str(error))
        return 1
    finally:
        stage.close()


def _run(
    stage: Stage, options: argparse.Namespace, chosen: Sequence[Case], with_memory: bool, progress: runner.Progress
) -> int:
    million = 100_000 if options.quick else 1_000_000
    is_whole = not options.only and not options.quick
    if is_whole:
        publication.pages(ROOT)  # raises now, and not in half an hour, if a page lacks the place for its figures
    busy = machine.busy()  # before this run itself makes the machine busy
    facts = _facts(stage, options, busy)
    if busy:
        progress.say(busy)
    took = (len(chosen) * (options.seconds * options.rounds + 1) + (60 if with_memory else 0)) * 1.15
    progress.say(f"{facts.engine}; {len(chosen)} cases, about {max(1, round(took / 60))} min")
    rows = runner.run(stage, chosen, options.seconds, options.rounds, progress)
    readings = []
    if with_memory:
        try:
            readings = memory.measure(stage, options.seconds, million, progress.say)
        except (Missing, CaseFailed, OSError, RuntimeError, TimeoutError) as error:
            progress.say(f"memory was not measured: {error}")
    for name in ("redis", "postgresql"):
        if name in rows and rows[name].samples:
            facts.versions[name] = getattr(stage, name).version
    claims = judge(rows, readings, million)
    doubts = trust.doubts(busy, options.rounds, rows, bool(readings))
    data = report.as_data(facts, rows, claims, readings, doubts)
    picture = plot.svg(facts, rows, claims)
    if is_whole:
        return _conclude(data, picture, progress)
    _keep(data, picture, "partial", progress)
    return 1 if any(row.trouble for row in rows.values()) or (with_memory and not readings) else 0


def _facts(stage: Stage, options: argparse.Namespace, busy: str) -> Facts:
    """The facts of a run that are known before it begins."""
    engine = stage.engine
    product = "MariaDB" if engine.is_mariadb else "MySQL"
    return Facts(
        engine=f"{product} {re.sub(r'[-+].*', '', engine.version)}",
        command=shlex.join(["python", "-m", "bench", *sys.argv[1:]]),
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        rounds=options.rounds,
        seconds=options.seconds,
        hardware=machine.hardware(stage.directory),
        versions={product: engine.version, **machine.versions()},
        busy=busy,
    )


def _conclude(data: report.Data, picture: str, progress: runner.Progress) -> int:
    """Publish a whole run, or keep it to itself and say why it cannot be trusted. Returns the exit status."""
    if not data["doubts"]:
        publication.publish(data, picture, ROOT)
        progress.say(f"published: {publication.PAGE}, {publication.PICTURE}, {publication.README}")
        return 0
    _keep(data, picture, "distrusted", progress)
    progress.say("not published, because these figures cannot be trusted:")
    for doubt in data["doubts"]:
        progress.say(f"  {doubt}")
    return 1


def _keep(data: report.Data, picture: str, what: str, progress: runner.Progress) -> None:
    """Write a run that is not published into bench/results/, and print it. `what`: the end of its files' name."""
    name = f"{data['engine'].lower().replace(' ', '-')}-{what}"
    folder = publication.results(ROOT)
    folder.mkdir(exist_ok=True)
    text = report.whole_report(data, f"{name}.svg")
    blocks.write(folder / f"{name}.svg", picture)
    blocks.write(folder / f"{name}.json", report.as_json(data))
    blocks.write(folder / f"{name}.md", text)
    print(text)
    progress.say(f"written: bench/results/{name}.md, .json, .svg")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measures the ticket server beside what else one could use. Everything is started here, on "
        "127.0.0.1, and ended again; nothing is installed. A whole run is published in docs/performance.md and "
        "README.md, unless it cannot be trusted; every other run is written to bench/results/ alone.",
        epilog="cases: " + " ".join(_NAMES) + ". The database server is TICKETS_BENCH_MYSQLD, else "
        "TICKETS_TEST_MYSQLD, else mysqld or mariadbd on the path.",
    )
    parser.add_argument("--seconds", type=_positive, metavar="N", help="per case and round (default 4)")
    parser.add_argument("--rounds", type=_positive, metavar="N", help="after one that warms up (default 5)")
    parser.add_argument("--only", nargs="+", metavar="CASE", choices=_NAMES, help="these cases alone")
    parser.add_argument("--quick", action="store_true", help="one second, one round: does everything work here?")
    options = parser.parse_args(arguments)
    options.seconds = options.seconds or (1 if options.quick else 4)
    options.rounds = options.rounds or (1 if options.quick else 5)
    return options


def _positive(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 600:
        raise argparse.ArgumentTypeError("expected: 1 to 600")
    return number


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
