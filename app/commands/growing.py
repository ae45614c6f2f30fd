"""The command `ticketd grow`: it shows on standard error how far the change of the ring is."""

import asyncio
import os
import socket
import sys

from rich.console import Console
from rich.progress import Progress

from app.databases.engines import open_database
from app.errors import DatabaseError, SettingsError
from app.service import boot_clock
from app.settings import Settings
from app.tickets.growth import Growth, GrowthRefused, Say


def run(settings: Settings, increment: int | None) -> int:
    """Change the ring, or say how far a change is if `increment` is None. Returns the exit status."""
    if not settings.databases:
        raise SettingsError("TICKETS_DATABASES: name the ticket databases; the embedded pair does not grow")
    with Progress(console=Console(stderr=True), transient=not sys.stderr.isatty()) as progress:
        task = progress.add_task("looking at the ticket databases", total=None)

        def say(what: str, done: int, total: int) -> None:
            progress.update(task, description=what, completed=done, total=total)

        try:
            left = asyncio.run(_run(settings, increment, say))
        except (GrowthRefused, DatabaseError) as error:
            left = [str(error)]
    for line in left:
        print(line)
    return 1 if left else 0


async def _run(settings: Settings, increment: int | None, say: Say) -> list[str]:
    growth = Growth(
        [open_database(each, settings.database_timeout) for each in settings.databases],
        increment or 1,
        f"grow-{socket.gethostname()}-{os.getpid()}"[:80],
        interval=settings.probe_interval,
        timeout=settings.database_timeout,
        clock=boot_clock,
        say=say,
    )
    if increment is None:
        return await growth.status()
    await growth.run()
    return []
