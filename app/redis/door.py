"""The Redis protocol's port: listens, and holds what its connections share."""

import asyncio
import itertools
import logging
import socket
from collections.abc import Sequence

from app.clients.accepting import accepting
from app.clients.connections import Connections
from app.clients.denials import Denials
from app.clients.known_reads import KnownReads
from app.clients.tokens import Tokens
from app.common.errors import TooManyConnections
from app.common.listening import BACKLOG, port_of
from app.common.log import event
from app.redis.client_commands import ClientCommands
from app.redis.commands import Commands
from app.redis.connection import RedisConnection, Run
from app.redis.reply_queue import Debts
from app.redis.requests import Watcher
from app.redis.session import Session
from app.redis.ticket_commands import TicketCommands, single_ticket
from app.tickets.desk.front_desk import FrontDesk, outcome_of
from app.tickets.sequences.catalog import Catalog

log = logging.getLogger(__name__)


class RedisDoor:
    """See connection.Shared. `connections`: all of the server's, whatever they speak; `timeout`: seconds for looking a
    sequence up; `watcher`: who is told of each request for tickets."""

    def __init__(
        self,
        desk: FrontDesk,
        catalog: Catalog,
        tokens: Tokens,
        denials: Denials,
        connections: Connections,
        *,
        timeout: float,
        watcher: Watcher | None = None,
    ) -> None:
        self.turns = connections.turns
        self.debts = Debts()
        self._tokens = tokens
        self._tickets = TicketCommands(desk, catalog, timeout, watcher, self.turns)
        self._commands = Commands(self._tickets, ClientCommands(denials, connections.most), desk, denials)
        self._numbers = itertools.count(1)
        self._servers: list[asyncio.Server] = []
        self._desk = desk
        self._connections = connections
        self.closed = connections.closed
        self.execute = self._commands.execute
        self.single_ticket = single_ticket
        self.at_once = self._tickets.at_once
        self.draw = self._tickets.draw
        self.known_runs = KnownReads[Run]()

    def opened(self, connection: RedisConnection) -> bool:
        """See connection.Shared. A client that is refused never says what it wants; it counts as a request for a
        ticket."""
        if self._connections.opened_for_tickets(connection):
            return True
        self._desk.turn_away("ticket", outcome_of(TooManyConnections()))
        return False

    async def accept_on(self, host: str, sockets: Sequence[socket.socket]) -> None:
        """Accept connections from now on. `sockets`: they listen on `host`."""
        loop = asyncio.get_running_loop()
        for each in accepting(sockets):
            self._servers.append(await loop.create_server(self.make_connection, sock=each, backlog=BACKLOG))
        event(log, logging.INFO, "speaks the Redis protocol", host=host, port=port_of(sockets))

    def stop(self) -> None:
        """Ask for what has come, and accept no further connection. Those that are open end with the server's others."""
        self._tickets.finish()
        for server in self._servers:
            server.close()

    def make_connection(self) -> RedisConnection:
        """A protocol for a new connection."""
        return RedisConnection(self, asyncio.get_running_loop())

    def new_session(self) -> Session:
        """See connection.Shared."""
        return Session(self._tokens, next(self._numbers))
