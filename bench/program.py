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
from bench.figures import Figures, doubts
from bench.processes import other_side, this_side
from bench.stage import DATABASES_IN_WORDS, RESERVE, Stage
from tests.servers import Engine, engines

_console = Console(stderr=True)
HERE, THERE = "this", "other"


def program() -> None:
    """Run the command that the arguments name."""
    app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    app.command()(bench)
    app()


def bench(
    *,
    rounds: Annotated[int, typer.Option(min=1, help="How often each case is measured.")] = 8,
    seconds: Annotated[int, typer.Option(min=1, help="How long each measurement takes.")] = 2,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CASE", help=f"Measure this case only; may be repeated. Cases: {', '.join(c.name for c in CASES)}."
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="DIRECTORY|COMMAND", help="Compare with another server: a checkout, or a command."),
    ] = None,
    engine: Annotated[str | None, typer.Option(help="mysql or mariadb; unset: MySQL, if the tests have it.")] = None,
    output: Annotated[Path | None, typer.Option(help="Write every figure into this file, as JSON.")] = None,
    publish: Annotated[
        bool,
        typer.Option(help=f"Write the figures into {', '.join(map(str, report.PAGES))} and {report.PLOT}, if trusted."),
    ] = False,
) -> None:
    """Measure the ticket server beside what else there is, or beside another ticket server.

    It starts two durable database servers and all else on 127.0.0.1, and ends them. In each round each case is measured
    once, so that what is compared is measured alternately. Figures are medians of the rounds, and ratios medians of the
    ratios within rounds. A run of all cases takes 15 minutes. The machine should do nothing else meanwhile: the program
    looks, and does not publish a run that it cannot trust.
    """
    chosen = _chosen(only, against is not None)
    if publish and (only or against):
        raise typer.BadParameter("--publish goes with a whole run, so without --only and --against")
    if publish:
        report.check_pages()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sides = {HERE: this_side()} | ({THERE: other_side(against)} if against else {})
    load = machine.load_average()
    with Stage(sides, _engine(engine)) as stage:
        ((version,),) = stage.databases[0].execute("SELECT VERSION()")
        facts = machine.facts(stage.databases[0].data_dir.parent, f"{stage.engine} {version} ({DATABASES_IN_WORDS})")
        facts |= {"rounds": str(rounds), "seconds": str(seconds), "reserve": f"{RESERVE} s"} | (
            {"other": against} if against else {}
        )
        calibration = machine.Calibration()
        figures = _measure(stage, chosen, rounds, seconds, calibration)
    cores = os.cpu_count() or 1
    found = doubts(
        figures, load=load, cores=cores, others=calibration.others, calibration=calibration.took, facts=facts
    )
    table = report.against(chosen, figures, list(sides)) if against else report.beside(chosen, figures, HERE)
    print(f"{table}\n\n{report.described(facts, found)}")
    if output is not None:
        kept = {
            f"{case} of {side}": [sample._asdict() for sample in rounds.values()]
            for (case, side), rounds in figures.rounds.items()
        }
        output.write_text(json.dumps({"facts": facts, "doubts": found, "rounds": kept}, indent=1), encoding="utf-8")
    if publish and not found:
        report.publish(chosen, figures, HERE, facts)
    raise typer.Exit(1 if figures.troubles or (publish and found) else 0)


def _measure(
    stage: Stage, cases: Sequence[Case], rounds: int, seconds: int, calibration: machine.Calibration
) -> Figures:
    """Measure each case once a round, with each server; of two, another one is first in each round."""
    figures = Figures()
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=_console, refresh_per_second=1) as progress:
        task = progress.add_task("starting", total=rounds * len(cases) * len(stage.sides))
        for number in range(rounds):
            sides = list(stage.sides)[:: -1 if number % 2 else 1]
            for case in cases:
                for side in sides:
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


def _engine(wanted: str | None) -> Engine:
    found = {str(engine): engine for engine in engines("mysql", "mariadb")}
    name = wanted or list(found)[-1]
    if name not in found:
        raise typer.BadParameter(f"--engine {name}: expected one of {', '.join(found)}")
    return found[name]
