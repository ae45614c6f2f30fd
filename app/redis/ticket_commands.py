"""The commands that draw tickets, or ask for a sequence."""

import re

from app.clients.turns import Turns
from app.redis import replies
from app.redis.connection import RedisConnection
from app.redis.gathering import Gatherer, SingleTickets
from app.redis.look_ups import MOST_NAMES, LookUp, LookUps
from app.redis.parser import Command
from app.redis.requests import Block, RedisTicketRequest, TicketList, Watcher
from app.tickets.desk.front_desk import FrontDesk
from app.tickets.requests.request import LARGEST_COUNT, LARGEST_KEY
from app.tickets.sequences.catalog import Catalog

_NUMBER = re.compile(rb"-?[1-9][0-9]{0,18}|0")
_LARGEST = 2**63 - 1


class TicketCommands:
    """`timeout`: seconds for looking a sequence up. `watcher`: who is told of each request for tickets. `turns`: when
    there is time for them."""

    def __init__(
        self, desk: FrontDesk, catalog: Catalog, timeout: float, watcher: Watcher | None, turns: Turns
    ) -> None:
        self._desk = desk
        self._catalog = catalog
        self._look_ups = LookUps(catalog, timeout)
        self._watcher = watcher
        self._gatherer = Gatherer(desk.accept, turns)
        self.finish = self._gatherer.finish

    def at_once(self, sequence: str, count: int) -> bytes | None:
        """See connection.Shared."""
        if self._watcher is not None or not self._desk.draws_ahead:
            return None  # a watcher is told of requests, which get the same tickets
        if self._gatherer.holds(sequence):
            return None  # what came before gets the smaller tickets
        tickets = self._desk.ready(sequence, count, singly=True)
        return None if tickets is None else replies.single_tickets(tickets)

    def draw(self, tickets: SingleTickets) -> None:
        """See connection.Shared."""
        self._watch("INCR", tickets)
        self._gatherer.add(tickets)

    def incr(self, connection: RedisConnection, command: Command) -> None:
        """INCR sequence"""
        tickets = SingleTickets(connection, _name(command), 1)
        connection.expect(tickets)
        self.draw(tickets)

    def incrby(self, connection: RedisConnection, command: Command) -> None:
        """INCRBY sequence 1"""
        number = _whole_number(command[2])
        if number == 1:
            self.incr(connection, command)
        elif number is None:
            self._refuse(connection, "ticket", "value is not an integer or out of range")
        elif number < 1:
            self._refuse(connection, "ticket", "tickets are handed out, and never taken back: INCRBY takes 1 alone")
        else:
            name = replies.shown(command[1])
            self._refuse(
                connection,
                "ticket",
                "there is no run of consecutive integers to give, for two databases take turns: "
                f"TICKET.BLOCK {name} {number} gives as many, with a step",
            )

    def take(self, connection: RedisConnection, command: Command) -> None:
        """TICKET.TAKE sequence [COUNT n] [KEY k | SHARD s]"""
        given: dict[bytes, int] = {}
        options = command[2:]
        for option, value in zip(options[::2], options[1::2], strict=False):
            name, number = option.upper(), _whole_number(value)
            least, largest = (1, LARGEST_COUNT) if name == b"COUNT" else (0, LARGEST_KEY)
            if name not in (b"COUNT", b"KEY", b"SHARD") or name in given:
                self._refuse(connection, "ticket", "syntax error")
                return
            if number is None or not least <= number <= largest:
                text = f"{name.decode()} has to be a whole number from {least} to {largest}"
                self._refuse(connection, "ticket", text)
                return
            given[name] = number
        if len(options) % 2:
            self._refuse(connection, "ticket", "syntax error")
            return
        address = given.get(b"KEY"), given.get(b"SHARD")
        count = given.get(b"COUNT", 1)
        request = TicketList(connection, _name(command), count, None if address == (None, None) else address)
        self._draw_for(connection, command, request)

    def block(self, connection: RedisConnection, command: Command) -> None:
        """TICKET.BLOCK sequence n"""
        size, largest = _whole_number(command[2]), self._desk.largest_block
        if size is None or not 1 <= size <= largest:
            self._refuse(connection, "block", f"a block's size has to be a whole number from 1 to {largest}")
        else:
            self._draw_for(connection, command, Block(connection, _name(command), size, None))

    def exists(self, connection: RedisConnection, command: Command) -> None:
        """EXISTS sequence [sequence ...]"""
        names = [name.decode("latin-1") for name in command[1:]]
        if len(names) > MOST_NAMES:
            connection.reply(replies.error("ERR", f"EXISTS takes {MOST_NAMES} sequences at the most"))
        elif all(name in self._catalog.entries for name in names):
            connection.reply(replies.integer(len(names)))
        else:
            look_up = LookUp(connection, names)
            connection.expect(look_up)
            self._look_ups.add(look_up)

    def _draw_for(self, connection: RedisConnection, command: Command, request: RedisTicketRequest) -> None:
        connection.expect(request)
        self._watch(command[0].upper().decode(), request)
        self._gatherer.ask(request)

    def _watch(self, command: str, tickets: SingleTickets | RedisTicketRequest) -> None:
        if self._watcher is not None:
            tickets.watched_by(self._watcher, f"{command} {replies.shown(tickets.sequence.encode())}")

    def _refuse(self, connection: RedisConnection, endpoint: str, text: str) -> None:
        self._desk.turn_away(endpoint, "invalid")
        connection.reply(replies.error("ERR", text))


def single_ticket(command: Command) -> str | None:
    """The sequence that this command wants one ticket of; None for any other command."""
    size = len(command)
    if size == 2:
        if command[0].upper() == b"INCR":
            return command[1].decode("latin-1")
    elif size == 3 and command[2] == b"1" and command[0].upper() == b"INCRBY":
        return command[1].decode("latin-1")
    return None


def _name(command: Command) -> str:
    return command[1].decode("latin-1")  # what is not ASCII is refused, and no name is mistaken for another


def _whole_number(text: bytes) -> int | None:
    """A number as Redis reads it: in digits alone, and 63 bits."""
    number = int(text) if _NUMBER.fullmatch(text) else None
    return None if number is None or abs(number) > _LARGEST else number
