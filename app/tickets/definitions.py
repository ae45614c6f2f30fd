"""Which kinds the sequences are of, as the ticket databases record it.

A definition is written once and never changed. Where two databases record different ones, ids of both may have been
handed out, and nobody can say which is right: the sequence is not served, and an operator has to give it up.
"""

import logging
from collections.abc import Iterable, Mapping

from app.common.errors import InvalidRequest, NoTicketDatabase, OlderServer, SequenceConflict, TicketDatabaseError
from app.common.log import event
from app.databases.protocol import OLDER_SECONDS, ServerEntry
from app.kinds.definition import Definition
from app.kinds.kind import Kind
from app.kinds.table import kind_named
from app.tickets.ring import Member, Ring

log = logging.getLogger(__name__)


class Definitions:
    """The definitions by sequence, and what is wrong with some of them."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self.known: dict[str, Definition] = {}
        self.troubles: dict[str, str] = {}
        """By sequence: why it cannot be served, in words."""
        self._on: dict[Member, dict[str, Definition]] = {}

    def forget(self) -> None:
        """Another ring: everything is read anew."""
        self.known.clear()
        self.troubles.clear()
        self._on.clear()

    async def read(self, member: Member) -> None:
        """Read what this database records. Raises TicketDatabaseError."""
        found = await member.database.definitions()
        self._on[member] = dict(found)
        for definition in found.values():
            self._learn(member, definition)

    def _learn(self, member: Member, definition: Definition) -> None:
        name = definition.sequence
        known = self.known.setdefault(name, definition)
        if known != definition:
            self.troubles[name] = (
                f"{member.name} records it as {in_words(definition)}, another ticket database as {in_words(known)}; "
                "ids of both may have been handed out, so make another sequence and give this one up"
            )

    def kind_of(self, definition: Definition) -> Kind | None:
        """The kind of a definition; None, and a trouble, where this release cannot serve it."""
        try:
            kind = kind_named(definition.kind)
        except InvalidRequest:
            kind = None
        if kind is not None and kind.holds(definition.parameters):
            return kind
        self.troubles[definition.sequence] = f"it is {in_words(definition)}, which this release cannot make"
        return None

    async def complete(self, member: Member) -> None:
        """Write to this database the definitions that it lacks and others have. Raises TicketDatabaseError."""
        on = self._on.get(member)
        if on is None:
            return
        for name in self.known.keys() - on.keys() - self.troubles.keys():
            found = await member.database.define(self.known[name])
            on[name] = found
            self._learn(member, found)

    async def define(self, definition: Definition, up: Iterable[Member]) -> None:
        """Have all of these databases record it, in offset order, so that of two servers one is first everywhere.

        Raises SequenceConflict where another definition stands, OlderServer where a server serves that does not know
        the kind, NoTicketDatabase where no database could record it.
        """
        up = list(up)
        await self._refuse_while_older_servers_serve(definition.kind, up)
        recorded = False
        for member in up:
            try:
                found = await member.database.define(definition)
            except TicketDatabaseError as error:
                event(log, logging.WARNING, "could not define it", sequence=definition.sequence,
                      database=member.name, reason=error)  # fmt: skip
                continue
            self._on.setdefault(member, {})[definition.sequence] = found
            self._learn(member, found)
            if found != definition:
                raise SequenceConflict(f"the sequence {definition.sequence} exists as {in_words(found)}")
            recorded = True
        if not recorded:
            raise NoTicketDatabase("no ticket database could make the sequence")

    async def _refuse_while_older_servers_serve(self, kind: str, up: Iterable[Member]) -> None:
        """A server that does not know the kind would give the name to a sequence of plain tickets."""
        for member in up:
            try:
                servers = await member.database.servers(OLDER_SECONDS)
            except TicketDatabaseError as error:
                raise NoTicketDatabase(f"{member.name} {error}; it has to say which servers serve it") from error
            older = next((server for server in servers if kind not in server.kinds), None)
            if older is not None:
                raise OlderServer(f"a ticket server {of_release(older)} serves {member.name}; it does not know {kind}")


def in_words(definition: Definition) -> str:
    """The kind and its parameters, for a sentence."""
    parameters = ", ".join(f"{name} {value}" for name, value in sorted(definition.parameters.items()))
    return f"kind {definition.kind}" + (f" with {parameters}" if parameters else "")


def same(given: Mapping[str, int], recorded: Mapping[str, int]) -> bool:
    """Whether every parameter that is given is the recorded one."""
    return all(recorded.get(name) == value for name, value in given.items())


def of_release(server: ServerEntry) -> str:
    """Of which release the server is, for a sentence."""
    return "of an older release" if server.release == "older" else f"of release {server.release}"
