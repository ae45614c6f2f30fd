"""The definitions of sequences, as the ticket databases keep them, and how servers agree on them.

A server that is asked to make a sequence claims its name with a definition, on every database that it reaches, in the
order of their offsets. A database keeps the first claim. A server that finds another claim goes on with that one, and a
definition that is decided takes the place of every claim. So the definition that a server ends with is the one that the
first server brought to any database which all of them reach. The server decides it everywhere before it makes a table.

Servers that reached no database in common may have decided different definitions. Then the definition on the database
of the lowest offset stands, and /healthz names the other one.
"""

import asyncio
import logging
import secrets
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace

from app.common.errors import (
    InvalidRequest,
    NoTicketDatabase,
    OlderServer,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseUnavailable,
)
from app.common.log import event
from app.databases.protocol import OLDER_SECONDS, ServerEntry
from app.kinds.definition import Definition
from app.kinds.kind import Kind
from app.kinds.table import kind_named
from app.tickets.ring.ring import Member, Ring

log = logging.getLogger(__name__)

TRIES = 8
"""How often a server asks a busy database, and how often it begins again because another server was faster."""
PAUSE = 0.02
"""Seconds between two tries."""
ABANDONED_SECONDS = 30.0
"""A claim, or a definition of plain tickets without a table, is forgotten after this time: the server that wrote it has
ended before it made a table, or the table was dropped."""


class Definitions:
    """The definitions by sequence, and the reasons why some of them cannot be served."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self.known: dict[str, Definition] = {}
        """The definition that stands, by sequence."""
        self.troubles: dict[str, str] = {}
        """The reason why this release cannot serve a sequence, by sequence."""
        self._on: dict[Member, dict[str, Definition]] = {}
        self._without_table: dict[Definition, float] = {}

    def forget(self) -> None:
        """Begin another ring: every definition is read again."""
        self.known.clear()
        self.troubles.clear()
        self._on.clear()
        self._without_table.clear()

    async def read(self, member: Member) -> set[str]:
        """Read the definitions that this database keeps. Returns the sequences for which another definition stands now.
        Raises TicketDatabaseError."""
        found = await member.database.definitions()
        before, self._on[member] = self._on.get(member, {}), dict(found)
        return self._work_out({key for key in before.keys() | found.keys() if before.get(key) != found.get(key)})

    def _work_out(self, keys: Iterable[str]) -> set[str]:
        """Work out which definitions stand. Returns the sequences for which another definition stands now."""
        changed = set()
        for key in keys:
            standing = self._standing(key)
            if standing is not None and self.known.get(standing.sequence) != standing:
                self.known[standing.sequence] = standing
                self.troubles.pop(standing.sequence, None)
                changed.add(standing.sequence)
        return changed

    def _standing(self, key: str) -> Definition | None:
        kept = (self._on[member].get(key) for member in self._ring.members if member in self._on)
        return next((definition for definition in kept if definition is not None and definition.decided), None)

    def lowest_offset(self, name: str) -> int | None:
        """The lowest offset of a database that keeps a decided definition of the sequence; None if none does."""
        for member in self._ring.members:
            definition = self._on.get(member, {}).get(name.lower())
            if definition is not None and definition.decided:
                return member.database.offset
        return None

    def overruled(self) -> Iterator[tuple[str, Member, str]]:
        """The decided definitions that do not stand: the sequence, the database, and what the operator can do."""
        for member, kept in self._on.items():
            for key, definition in kept.items():
                standing = self._standing(key)
                if standing is None or not definition.decided or definition.same_as(standing):
                    continue
                yield (
                    standing.sequence,
                    member,
                    f"{definition.sequence} was made as {in_words(definition)} here, while the server reached no "
                    f"database in common with the one that made {standing.sequence} as {in_words(standing)}, which "
                    "stands. Use another sequence in place of this one; then delete its row from _definitions and "
                    "_kinds of this database, and the server writes what stands",
                )

    def kind_of(self, definition: Definition) -> Kind | None:
        """The kind of a definition. None if this release cannot serve it; `troubles` has the reason then."""
        try:
            kind = kind_named(definition.kind)
        except InvalidRequest:
            kind = None
        if kind is not None and kind.holds(definition.parameters):
            return kind
        self.troubles[definition.sequence] = f"it is {in_words(definition)}, which this release cannot make"
        return None

    async def complete(self, member: Member, tables: Container[str]) -> None:
        """Write to this database the definitions that it lacks and another one has. Leave a name out if the database
        has a table of plain tickets under it. `tables`: the names of its tables. Raises TicketDatabaseError."""
        on = self._on.get(member)
        if on is None:
            return
        for definition in list(self.known.values()):
            found = on.get(definition.key)
            is_beside_table = definition.kind != "ticket" and definition.sequence in tables
            if (found is None or not found.decided) and not is_beside_table:
                on[definition.key] = await member.database.define(definition, found)

    async def forget_abandoned(self, has_table: Iterable[str], now: float) -> None:
        """Forget the claims, and the definitions of plain tickets, whose sequence has had no table for
        ABANDONED_SECONDS. Every database is up and has been listed. Raises TicketDatabaseError.

        `has_table`: the names of the sequences that have a table. `now`: seconds, by the event loop.
        """
        tables = {name.lower() for name in has_table}
        found = {
            definition: member
            for member, kept in self._on.items()
            for definition in kept.values()
            if not definition.decided or (definition.kind == "ticket" and definition.key not in tables)
        }
        self._without_table = {each: self._without_table.get(each, now) for each in found}
        for definition in [each for each, since in self._without_table.items() if now - since >= ABANDONED_SECONDS]:
            for member in list(self._on):
                if self._on.get(member, {}).get(definition.key) == definition:
                    await member.database.forget_definition(definition)
                    # what was read meanwhile is newer
                    if (kept := self._on.get(member, {})).get(definition.key) == definition:
                        del kept[definition.key]
            if definition.key not in {each for kept in self._on.values() for each in kept}:
                self.known.pop(definition.sequence, None)

    # --- agreeing ----------------------------------------------------------------------------------------------------

    async def agree(self, wanted: Definition, up: Iterable[Member]) -> tuple[Definition, bool]:
        """Agree with the other servers on the definition of a sequence. Returns the definition that stands, and whether
        it is the one that this call claimed.

        `up`: the databases that are up, in the order of their offsets. Raises OlderServer if a server does not know the
        kind; NoTicketDatabase if no database could keep the definition, or the servers find no agreement in time.
        """
        up = list(up)
        if wanted.kind != "ticket":
            await self._refuse_while_older_servers_serve(wanted.kind, up)
        claim = replace(wanted, decided=False, by=secrets.token_hex(8))
        for _ in range(TRIES):
            kept, standing = await self._claim(claim, up)
            if await self._decide(standing, kept):
                self._work_out([claim.key])
                return standing, standing.by == claim.by
            await asyncio.sleep(PAUSE)
        raise NoTicketDatabase("other servers are making this sequence; try again")

    async def _claim(self, claim: Definition, up: Iterable[Member]) -> tuple[dict[Member, Definition], Definition]:
        """Claim the name on these databases. Returns what each database keeps of the name now, without the databases
        that cannot keep it, and the definition that has to be decided.

        What the databases keep is passed on and not looked up in what was read: another ring makes this server forget
        that, and a database that was read before the claim does not know it.
        """
        kept: dict[Member, Definition] = {}
        carried = claim
        for member in up:
            found = await self._keep(member, replace(carried, decided=False), None)
            if found is not None:
                carried = kept[member] = found
        if not kept:
            raise NoTicketDatabase("no ticket database could make the sequence")
        return kept, next((each for each in kept.values() if each.decided), replace(carried, decided=True))

    async def _decide(self, definition: Definition, kept: dict[Member, Definition]) -> bool:
        """Have these databases keep it for good, the last one first. False where another server was faster; what is
        decided otherwise stays."""
        decided = False
        for member, found in reversed(kept.items()):
            after = found if found.decided else await self._keep(member, definition, found)
            if after is None:
                continue
            if after != definition and not found.decided:
                return False
            decided = True
        return decided

    async def _keep(self, member: Member, definition: Definition, old: Definition | None) -> Definition | None:
        """Have a database keep the definition in place of `old`, and note what it keeps then; None where it fails."""
        try:
            found = await self._define(member, definition, old)
        except TicketDatabaseUnavailable as error:
            event(log, logging.WARNING, "could not define it", sequence=definition.sequence,
                  database=member.name, reason=error)  # fmt: skip
            return None
        self._on.setdefault(member, {})[definition.key] = found
        return found

    async def _define(self, member: Member, definition: Definition, old: Definition | None) -> Definition:
        """Call TicketDatabase.define, up to TRIES times while the database is busy. Raises NoTicketDatabase,
        TicketDatabaseUnavailable."""
        for _ in range(TRIES):
            try:
                return await member.database.define(definition, old)
            except TicketDatabaseBusy:
                await asyncio.sleep(PAUSE)
            except TicketDatabaseUnavailable:
                raise
            except TicketDatabaseError as error:
                raise NoTicketDatabase(f"{member.name} {error}") from error
        raise NoTicketDatabase(f"{member.name} is busy; try again")

    async def _refuse_while_older_servers_serve(self, kind: str, up: Iterable[Member]) -> None:
        """Raise OlderServer if a server does not know the kind. It would give the name to a sequence of plain
        tickets."""
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
    """Whether every given parameter has the recorded value."""
    return all(recorded.get(name) == value for name, value in given.items())


def of_release(server: ServerEntry) -> str:
    """The release of the server, for a sentence."""
    return "of an older release" if server.release == "older" else f"of release {server.release}"
