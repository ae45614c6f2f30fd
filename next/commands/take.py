"""`ticketd take`: tickets of one sequence, drawn by this process from the ticket databases themselves."""

import argparse
import asyncio
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

import uvloop

from next.databases.engines import open_database
from next.errors import NoTicketDatabase
from next.service import Options, Service
from next.settings import Settings, load
from next.tickets.desk import Desk
from next.tickets.request import Block, Call, Shape

AT_ONCE = 64
"""How many requests are under way at the same time."""
MOST_COUNT, MOST_SIZE = 1_000, 10_000
"""The most tickets of a list, and of a block."""
_HELP = """\
Prints tickets of a sequence, one a line, as it draws them. The sequence has to exist. Several requests are under way
at the same time, so the lines are in no order. A list increases; a block's tickets are at equal distances.

Settings come from TICKETS_DATABASES, TICKETS_DATABASE_PASSWORD, TICKETS_DATABASE_TIMEOUT, TICKETS_PROBE_INTERVAL,
TICKETS_REQUEST_TIMEOUT, TICKETS_INCREMENT and TICKETS_UNVERIFIED, each also from the file that TICKETS_…_FILE names.

Exit status: 0, all tickets were printed; 1, tickets cannot be had, standard error says why, and what was printed is
drawn; 2, the arguments or the settings are wrong.
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add this command to a command line."""
    parser = commands.add_parser(
        "take",
        help="print tickets of a sequence",
        description=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sequence", metavar="SEQUENCE", help="name of the sequence, in any case")
    parser.add_argument("-n", type=_whole, metavar="N", help="how many tickets; the default is one request's")
    shape = parser.add_mutually_exclusive_group()
    what = f"ask for lists of K tickets, 1 to {MOST_COUNT}"
    shape.add_argument("--count", type=_up_to(MOST_COUNT), metavar="K", help=what)
    what = f"ask for blocks of SIZE tickets, 1 to {MOST_SIZE}"
    shape.add_argument("--block", type=_up_to(MOST_SIZE), metavar="SIZE", help=what)
    what = "URLs in the order of their offsets, in place of TICKETS_DATABASES; passwords belong into the variables"
    parser.add_argument("--databases", metavar="URLS", help=what)
    parser.set_defaults(run=run)


def _whole(text: str) -> int:
    if not re.fullmatch("[1-9][0-9]{0,17}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


def _up_to(most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if _whole(text) > most:
            raise argparse.ArgumentTypeError(f"{text} is above {most}")
        return int(text)

    return read


def run(chosen: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Take and print tickets; return the exit status. Raises SettingsError, TicketError, BrokenPipeError."""
    settings = load(environment, {"databases": chosen.databases})
    uvloop.run(_run(chosen, settings))
    return 0


async def _run(chosen: argparse.Namespace, settings: Settings) -> None:
    name = f"{socket.gethostname()[:60]}:take-{os.getpid()}"
    service = Service(
        [open_database(address, settings.database_timeout) for address in settings.databases],
        Options(
            name,
            settings.probe_interval,
            settings.database_timeout,
            settings.request_timeout,
            settings.increment,
            refuses=settings.unverified == "refuse",
        ),
    )
    service.start()
    work = [asyncio.create_task(_take_all(service, chosen)), asyncio.create_task(service.watch())]
    try:
        await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        for each in work:
            if each.done():
                each.result()
    except NoTicketDatabase as error:
        why = "; ".join(f"{each.name}: {each.reason}" for each in service.sight.members if each.reason)
        raise NoTicketDatabase(f"{error} ({why})" if why else str(error)) from error
    finally:
        for each in work:
            each.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        await service.stop()


async def _take_all(service: Service, chosen: argparse.Namespace) -> None:
    with suppress(TimeoutError):  # new databases form their ring first
        async with asyncio.timeout(service.options.request_timeout):
            while not service.sight.in_sight:
                await service.sight.moved()
    shares = _shares(chosen)
    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(_take(service, chosen, shares))
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None  # one reason is enough


def _shares(chosen: argparse.Namespace) -> Iterator[int]:
    """How many tickets each request asks for."""
    each = chosen.count or chosen.block or 1
    left = chosen.n or each
    while left > 0:
        yield min(each, left)
        left -= each


async def _take(service: Service, chosen: argparse.Namespace, shares: Iterator[int]) -> None:
    """Ask for one share after the other until none is left, and print what is answered."""
    shape = Shape.BLOCK if chosen.block else Shape.LIST if chosen.count else Shape.SINGLE
    for count in shares:
        print(*await ask(service.desk, chosen.sequence, shape, count), sep="\n", flush=True)


async def ask(desk: Desk, sequence: str, shape: Shape, count: int) -> Sequence[int | str]:
    """Ask for tickets, and return them. Raises TicketError. Where the caller is cancelled, nobody gets an answer."""
    answer: asyncio.Future[int | str | list[int | str] | Block] = asyncio.get_running_loop().create_future()
    request = Call(sequence, answer.set_result, answer.set_exception, count=count, shape=shape)
    desk.take(request)
    try:
        drawn = await answer
    except asyncio.CancelledError:
        request.abandon()
        raise
    if isinstance(drawn, Block):
        return range(drawn.first, drawn.first + drawn.size * drawn.step, drawn.step)
    return drawn if isinstance(drawn, list) else [drawn]
