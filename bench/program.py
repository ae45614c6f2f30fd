"""The command line: `python -m bench --help`."""

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import httpx
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bench import CaseFailed, machine, report
from bench.case import Case
from bench.cases import CASES
from bench.figures import Figures, busy, doubts
from bench.processes import other_side, this_side
from bench.stage import Stage
from tests.servers import engines

HERE, THERE = "this", "other"
_console = Console(stderr=True)
_Rounds = Annotated[int, typer.Option(min=1, help="How often each case is measured.")]
_Seconds = Annotated[int, typer.Option(min=1, help="How long each measurement takes.")]
_Only = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CASE", help=f"Measure this case; may be repeated. Cases: {', '.join(c.name for c in CASES)}."
    ),
]
_Against = Annotated[
    str | None,
    typer.Option(metavar="DIRECTORY|COMMAND", help="Compare with another ticket server: a checkout, or a command."),
]
_Output = Annotated[Path | None, typer.Option(help="Write every figure of every round into this file, as JSON.")]
_Publish = Annotated[
    bool,
    typer.Option(help=f"Write the figures into {', '.join(map(str, report.PAGES))} and {report.PLOT}, if trusted."),
]


def program() -> None:
    """Run the command that the arguments name."""
    app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    app.command()(bench)
    app()


def bench(
    *,
    rounds: _Rounds = 8,
    seconds: _Seconds = 2,
    only: _Only = None,
    against: _Against = None,
    output: _Output = None,
    publish: _Publish = False,
) -> None:
    """Measure the ticket server beside what else there is, or beside another ticket server.

    It starts two durable databases and all else on 127.0.0.1, and ends them. The databases are MySQL if
    TICKETS_TEST_MYSQLD names a mysqld, else MariaDB. In each round each case is measured once, so that what is compared
    is measured alternately. Figures are medians of the rounds, and ratios medians of the ratios within rounds. All
    cases, with 8 rounds of 2 seconds, take about 15 minutes; one case takes less than a minute, mostly to begin.

    The table says of each bound whether it is met; a missed bound is no failure of the program. The machine should do
    nothing else meanwhile, nor in the minute before. The program looks, calls a run untrustworthy that it cannot trust,
    and does not publish it. The exit status is 1 if a case has no figure, or if the run should have been published and
    was not.
    """
    chosen = _chosen(only, against is not None)
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if publish:
        if only or against:
            raise typer.BadParameter("--publish goes with a whole run, so without --only and --against")
        if before := busy(load, cores):
            raise typer.BadParameter(f"--publish: {before[0]}; try again when it has fallen")
        report.check_pages()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sides = {HERE: this_side()} | ({THERE: other_side(against)} if against else {})
    with Stage(sides, engines("mysql", "mariadb")[-1]) as stage:
        facts = machine.facts(stage.databases[0].home) | stage.facts
        facts |= {"rounds": str(rounds), "seconds": str(seconds)} | ({"other": against} if against else {})
        calibration = machine.Calibration()
        figures = _measure(stage, chosen, rounds, seconds, calibration)
    others, took = calibration.others, calibration.took
    found = doubts(figures, load=load, cores=cores, others=others, calibration=took, facts=facts)
    table = report.against(chosen, figures, list(sides)) if against else report.beside(chosen, figures, HERE)
    print(f"{table}\n\n{report.described(facts, found)}")
    if output is not None:
        output.write_text(json.dumps(report.everything(figures, facts, found), indent=1), encoding="utf-8")
    if publish and not found:
        report.publish(chosen, figures, HERE, facts)
    raise typer.Exit(1 if figures.troubles or (publish and found) else 0)


def _measure(
    stage: Stage, cases: Sequence[Case], rounds: int, seconds: int, calibration: machine.Calibration
) -> Figures:
    """Measure each case once a round, with each server. The order of every other round is the reverse."""
    figures = Figures()
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=_console, refresh_per_second=1) as progress:
        task = progress.add_task("starting", total=rounds * len(cases) * len(stage.sides))
        for number in range(rounds):
            turn = -1 if number % 2 else 1
            for case in cases[::turn]:
                for side in list(stage.sides)[::turn]:
                    key = case.name, side
                    progress.update(task, description=f"{number + 1}: {' of '.join(key)}")
                    if key not in figures.troubles:
                        calibration.run()
                        try:
                            figure = case.run(stage, side, seconds)
                            figures.rounds.setdefault(key, {})[number] = figure
                        except (CaseFailed, TimeoutError, OSError, httpx.TransportError) as error:
                            figures.troubles[key] = str(error)
                            progress.console.print(f"{' of '.join(key)}: {error}", markup=False)
                    progress.advance(task)
    return figures


def _chosen(only: Sequence[str] | None, is_against: bool) -> list[Case]:
    possible = {case.name: case for case in CASES if case.is_ours or not is_against}
    for name in only or ():
        if name not in possible:
            raise typer.BadParameter(f"--only {name}: there is no such case; there are {', '.join(possible)}")
    return [case for name, case in possible.items() if not only or name in only]
