"""`ticketd`, and `python -m app`: the first code of ours that a process runs."""

import os
import signal
import sys
from collections.abc import Sequence

from app.errors import InvalidRequest, SettingsError, TicketError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command, and exit with its status. Every error is one line on standard error.

    arguments: those of the process if None.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["serve"]:
        # SIGHUP would end the process while it starts. The server reads the token files after it has set its handler.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        if given == ["serve"]:  # as deployments start it: without the command line's modules, which take 2 MiB
            from app.server import serve
            from app.settings import load

            status = serve(load(os.environ, {}))
        else:
            from app.commands.program import run

            status = run(given)
    except TicketError as error:
        print(f"ticketd: {' '.join(str(error).split())}", file=sys.stderr)
        status = 2 if isinstance(error, SettingsError | InvalidRequest) else 1
    except BrokenPipeError:
        # The reader has closed the pipe. Python would complain when it writes what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    sys.exit(status)


if __name__ == "__main__":
    main()
