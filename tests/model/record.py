"""Every ticket that was handed out, and whether it may have been.

What the contract covers. A ticket comes twice only where its database went back in time between the two, and one of
two excepts it, which is judged when a ticket is handed out:

- the first was *unmarked*: no other database could be told of it;
- the second was handed out *blind*: no database that knows what was issued could be asked.

And in both the ticket server that handed it out warned `unprotected` at that moment. A database counts as one that
could be asked if the ticket server had it in its ring when the ticket was drawn and it was well and within reach ever
since: that the ticket server stood still meanwhile is nobody else's fault. One that refuses to draw unverified is
never excepted. `knows[d, e]`: e can tell what d has issued.
"""

import itertools
from typing import NamedTuple

from app.waiters import Tickets
from tests.fakes.ticket_database import FakeServer
from tests.model.host import Host
from tests.model.runs import Run, runs_of, smallest_in_both


class Said(NamedTuple):
    """What held of tickets when they were handed out."""

    unmarked: bool = False
    blind: bool = False


class Issued(NamedTuple):
    """A run, who handed it out, and whether it was unmarked."""

    run: Run
    by: str
    unmarked: bool


class Record:
    """What was handed out of each sequence, and the numbers that each was moved above."""

    def __init__(self, servers: list[FakeServer], ceilings: dict[str, int]) -> None:
        self._servers = servers
        self._ceilings = ceilings
        self.runs: dict[str, list[Issued]] = {}
        self.floors: dict[str, int] = {}
        self.knows = {(d, e): True for d in servers for e in servers if d is not e}
        self.excepted = 0
        self._said: dict[tuple[int, str, int], Said] = {}
        self._marked_floors: dict[tuple[str, FakeServer], int] = {}
        self._moved_in: dict[tuple[str, FakeServer], int] = {}

    def server_of(self, ticket: int) -> FakeServer:
        return self._servers[(ticket - 1) % self._servers[0].increment]

    # --- when it is handed out -------------------------------------------------------------------------------------

    def handed_out(
        self, host: Host, sequence: str, server: FakeServer, tickets: Tickets, *, others_whole: bool
    ) -> None:
        """Judge what has just been handed out, as things are now. `others_whole`: no other database has gone back."""
        first, last = tickets[0], tickets[-1]
        witnesses = host.witnesses(sequence, server, first)
        warned = host.warns_of(server)
        others = [other for other in self._servers if other is not server]
        if others_whole and (not warned or host.refuses):
            marks = (other.mark(sequence, server.offset) for other in others)
            assert any(mark is not None and mark.mark >= last for mark in marks), (
                f"{first} to {last} in {sequence} were given by {host.name} without a mark, "
                f"{'though it refuses that' if warned else 'nor a warning'}"
            )
        excepted = warned and not host.refuses
        self._said[host.number, sequence, first] = Said(
            unmarked=excepted and not witnesses,
            blind=excepted and not any(self.knows[server, other] for other in witnesses),
        )
        ring = host.server.ring
        keepers = {member.database.offset for member in ring.keepers(ring.members[server.offset - 1])}
        for other in others:
            if other.offset not in keepers and other not in witnesses:
                self.knows[server, other] = False

    # --- when it has reached its client ----------------------------------------------------------------------------

    def take(self, host: Host, sequence: str, count: int, tickets: Tickets, floor: int) -> None:
        """Hold an answer against all answers before it."""
        assert len(tickets) == count, f"{count} wanted, {len(tickets)} given"
        increment = self._servers[0].increment
        first, last = tickets[0], tickets[-1]
        assert all(before < after for before, after in itertools.pairwise(tickets)), f"{tickets} do not increase"
        residues = {ticket % increment for ticket in tickets}
        assert len(residues) == 1, f"{tickets} are of two databases"
        server = self.server_of(first)
        said = self._said.pop((host.number, sequence, first), Said())
        assert not isinstance(tickets, range) or tickets.step == increment, f"they go in steps of {tickets.step}"
        if first <= floor:
            gone_back = server.life > self._moved_in.get((sequence, server), server.life)
            unmarked = first > self._marked_floors.get((sequence, server), 0)
            may_be = gone_back and (said.blind or unmarked)
            assert may_be, f"{first} in {sequence} after it was moved above {floor}"
            self.excepted += 1
        assert last <= self._ceilings[sequence], f"{last} is above the end of {sequence}"
        self._in_order(host, sequence, server, first, said)
        host.highest[sequence, server.offset] = last, said.unmarked
        for run in runs_of(tickets):
            assert server.has_drawn(sequence, run.first, run.last), (
                f"{run.first} to {run.last} were never drawn from {server.name}"
            )
            self.never_twice(host, sequence, run, said)

    def _in_order(self, host: Host, sequence: str, server: FakeServer, first: int, said: Said) -> None:
        highest, unmarked = host.highest.get((sequence, server.offset), (0, False))
        if first <= highest:
            gone_back = server.life > min(server.lives_that_drew(sequence, highest), default=server.life)
            may_be = gone_back and (said.blind or unmarked)
            assert may_be, f"{host.name} gave {first} in {sequence} after {highest}"
            self.excepted += 1

    def never_twice(self, host: Host, sequence: str, run: Run, said: Said) -> None:
        before = self.runs.setdefault(sequence, [])
        for other in before:
            twice = smallest_in_both(run, other.run)
            if twice is not None:
                may_be = (other.unmarked or said.blind) and self._went_back(sequence, twice)
                assert may_be, (
                    f"{sequence}: {twice}, of {run.first} to {run.last} of {host.name}, "
                    f"had been given by {other.by}: {other.run.first} to {other.run.last}"
                )
                self.excepted += 1
        before.append(Issued(run, host.name, said.unmarked))

    def _went_back(self, sequence: str, ticket: int) -> bool:
        return len(self.server_of(ticket).lives_that_drew(sequence, ticket)) > 1

    # --- what is known ---------------------------------------------------------------------------------------------

    def moved_above(self, host: Host, sequence: str, above: int) -> None:
        """A bump has been answered."""
        if above <= self.floors.get(sequence, 0):
            return
        self.floors[sequence] = above
        for server in self._servers:
            self._moved_in[sequence, server] = server.life
            if host.refuses or not host.warns_of(server):
                self._marked_floors[sequence, server] = above

    def went_back(self, server: FakeServer) -> None:
        """What it kept about the others is old or gone, too."""
        for other in self._servers:
            if other is not server:
                self.knows[other, server] = False

    def all_is_well(self) -> None:
        """Every database has been taken in by every ticket server: the others know where it stands now."""
        self.knows = dict.fromkeys(self.knows, True)
        for sequence, issued in self.runs.items():
            stands = {s: s.state.tables[sequence].counter for s in self._servers if sequence in s.state.tables}
            self.runs[sequence] = [
                each._replace(unmarked=each.unmarked and each.run.last >= stands.get(self.server_of(each.run.first), 0))
                for each in issued
            ]
        for sequence, floor in self.floors.items():
            for server in self._servers:
                if sequence in server.state.tables and server.state.tables[sequence].counter > floor:
                    self._marked_floors[sequence, server] = floor
