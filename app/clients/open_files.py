"""The limit on open files: every client connection is one, and so is every connection to a ticket database."""

import contextlib
from typing import Final

from app.common.errors import TicketError

LEAST: Final = 256
"""A process that may open fewer files is refused: with KEPT of them kept, too few would be left for clients."""
MOST = 65_536
"""The server raises the limit to this number if the system allows it."""
KEPT: Final = 192
"""Open files that no client gets: for the ticket databases, their probes, health checks, and what a process needs."""
DEFAULT_CONNECTIONS: Final = 10_000


def raise_limit() -> int:
    """Raise the limit on open files to what the system allows. Returns the limit; MOST where there is none.

    Raises TicketError where the system allows fewer than LEAST.
    """
    limit = MOST
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        target = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
        if soft != resource.RLIM_INFINITY:
            limit = soft
            if soft < target:
                resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
                limit = target
    if limit < LEAST:
        raise TicketError(
            f"the hard limit on open files is {limit}, and a ticket server requires {LEAST} at least; raise it "
            "(ulimit -Hn, LimitNOFILE= of systemd, --ulimit nofile= of Docker)"
        )
    return limit


def connections_allowed(wished: int | None, limit: int) -> int:
    """How many client connections there may be: as many as are `wished` for, or the default, where the limit on open
    files leaves enough for everything else."""
    return min(wished or DEFAULT_CONNECTIONS, limit - KEPT)
