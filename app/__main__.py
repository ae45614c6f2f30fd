"""`ticketd`, and `python -m app`: the first code of ours that a process runs."""

import signal
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command, and exit with its status. arguments: those of the process if None."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["serve"]:
        # SIGHUP would end the process while it starts. The server reads the token files after it has set its handler.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from app.commands.program import run

    sys.exit(run(given))


if __name__ == "__main__":
    main()
