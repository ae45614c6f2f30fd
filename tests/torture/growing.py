"""`ticketd grow` that sends itself a signal where one of its steps begins."""

import sys
from signal import Signals

STEPS = [
    *(f"stopping the draws {done}" for done in range(3)),
    *(f"reading the high-water marks {done}" for done in range(3)),
    *(f"writing the floors {done}" for done in range(3)),
    *(f"starting the draws {done}" for done in range(3)),
]
"""The steps of a change with three databases listed. The last but one comes after the deciding write."""
_PROGRAM = """
import os, sys
from app.__main__ import main
from app.commands import program
class Signalled(program.Growth):
    def __init__(self, *arguments, say, **others):
        def step(what, done, total):
            if f"{what} {done}" == sys.argv[2]:
                os.kill(os.getpid(), int(sys.argv[1]))
        super().__init__(*arguments, say=step, **others)
program.Growth = Signalled
sys.exit(main(sys.argv[3:]))
"""


def signalled(signal: Signals, step: str) -> list[str]:
    """Return how to start a `ticketd` whose `grow` gets this signal where this step begins; its arguments follow."""
    return [sys.executable, "-c", _PROGRAM, str(signal.value), step]
