"""The command line: `python -m next COMMAND`. Exit status 2: the arguments or the settings are wrong."""

import argparse
import os
import sys
from collections.abc import Sequence

from next.commands import take
from next.errors import SettingsError, TicketError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, and return the exit status. arguments: those of the process if None."""
    parser = argparse.ArgumentParser(prog="ticketd", description="Unique ids from ticket databases.")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    take.add_to(commands)
    chosen = parser.parse_args(arguments)
    try:
        status: int = chosen.run(chosen, os.environ)
    except SettingsError as error:
        print(f"ticketd: {error}", file=sys.stderr)
        return 2
    except TicketError as error:
        print(f"ticketd: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader has closed the pipe. Python would complain when it writes what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return status


if __name__ == "__main__":
    sys.exit(main())
