"""`ticketd`, and `python -m app`: the first code of ours that a process runs, before anything slow is imported."""

import signal
import sys


def main() -> None:
    """Entry point of `ticketd`; exits with the command's status."""
    if sys.argv[1:2] == ["serve"]:
        # SIGHUP would end the process while it starts. The server sets its own handler, and reads whatever has changed
        # until then: see TokenRotation.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from app.commands.cli import main as run_command

    run_command()


if __name__ == "__main__":
    main()
