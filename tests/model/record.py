"""Every ticket that was handed out, and whether it may have been.

What the contract covers. No ticket comes twice, whatever rings the two were drawn in and whichever databases gave them.
It comes twice only where a database went back in time, and one of two excepts it, which is judged when a ticket is
handed out:

- the first was *unmarked*: no other database could be told of it, and its own has gone back since, or left the ring;
- the second was handed out *blind*: its database has gone back, or is a new one, and none that knows what was issued
  could be asked.

And in both the ticket server that handed it out warned `unprotected` at that moment; or, where it was drawn ahead and
is the last that was, when it was drawn: until then it lay in reserve, of which /healthz warns. A database counts as one
that could be asked if the ticket server had it in its ring when the ticket was drawn and it was well and within reach
ever since: that the ticket server stood still meanwhile is nobody else's fault. One that refuses to draw unverified is
never excepted. `knows[d, e]`: e can tell what d has issued.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

from app.tickets.requests.request import Tickets
from tests.fakes.ticket_database import FakeServer
from tests.model.host import Host, WatchedLane
from tests.model.runs import Run, runs_of, smallest_in_both


class Said(NamedTuple):
    """What held of tickets when they were handed out: who drew them, in which ring."""

    server: FakeServer
    offset: int
    increment: int
    unmarked: bool = False
    blind: bool = False
    cut_off: bool = False


class Issued(NamedTuple):
    """A run, who handed it out and who drew it, and whether it was unmarked. `left`: what drew it has left the ring
    since, whether it has come back or not."""

    run: Run
    by: str
    server: FakeServer
    unmarked: bool
    left: bool = False


class Record:
    """The tickets that servers handed out of each sequence, and the numbers that bumps moved each sequence above."""

    def __init__(
        self, servers: list[FakeServer], ceilings: dict[str, int], ring: Callable[[], list[FakeServer]]
    ) -> None:
        self._ring = ring
        self._servers = servers
        self._ceilings = ceilings
        self.runs: dict[str, list[Issued]] = {}
        self.floors: dict[str, int] = {}
        self.knows = {(d, e): True for d in servers for e in servers if d is not e}
        self.excepted = 0
        self._said: dict[tuple[int, str, int], Said] = {}
        self._marked_floors: dict[tuple[str, FakeServer], int] = {}
        self._moved_in: dict[tuple[str, FakeServer], int] = {}
        self._life_when_well: dict[FakeServer, int] = {}

    # --- when it is handed out -------------------------------------------------------------------------------------

    def handed_out(
        self, host: Host, lane: WatchedLane, server: FakeServer, tickets: Tickets, *, whole: bool, cut_off: bool
    ) -> None:
        """Judge what has just been handed out, as things are now. `whole`: no other database has gone back. `cut_off`:
        it was drawn ahead, and its ticket server reaches no database."""
        sequence, offset, first, last = lane.sequence, lane.member.database.offset, tickets[0], tickets[-1]
        witnesses = host.witnesses(sequence, server, first)
        warned = host.warns_of(server)
        assert warned or not host.holds_unprotected(lane), f"nothing warns of what {host.name} holds of {sequence}"
        warned = warned or lane.was_warned_of(first)
        others = [other for other in self._servers if other is not server]
        if whole and (not warned or host.refuses):
            marks = (other.state.marks.get((sequence, offset, lane.increment)) for other in others)
            assert any(mark is not None and mark.mark >= last for mark in marks), (
                f"{first} to {last} in {sequence} were given by {host.name} without a mark, "
                f"{'though it refuses that' if warned else 'nor a warning'}"
            )
        excepted = warned and not host.refuses
        self._said[host.number, sequence, first] = Said(
            server,
            offset,
            lane.increment,
            unmarked=excepted and not witnesses,
            blind=excepted and not any(self.knows[server, other] for other in witnesses),
            cut_off=cut_off,
        )
        up = host.up_witnesses(server)
        for other in others:
            if other not in up and other not in witnesses:
                self.knows[server, other] = False

    # --- when it has reached its client ----------------------------------------------------------------------------

    def take(self, host: Host, sequence: str, count: int, tickets: Tickets, floor: int, *, whole: bool = False) -> None:
        """Hold an answer against all answers before it. `whole`: it is a block."""
        assert len(tickets) == count, f"{count} requested, {len(tickets)} given"
        first, last = tickets[0], tickets[-1]
        assert all(before < after for before, after in itertools.pairwise(tickets)), f"{tickets} do not increase"
        said = self._said.pop((host.number, sequence, first))
        server, increment = said.server, said.increment
        residues = {ticket % increment for ticket in tickets}
        assert len(residues) == 1, f"{tickets} are of two databases"
        assert residues == {said.offset % increment}, f"{tickets} are of another database than {server.name}"
        assert not isinstance(tickets, range) or tickets.step == increment, f"they go in steps of {tickets.step}"
        if first <= floor:
            unmarked = first > self._marked_floors.get((sequence, server), 0)
            life = self._moved_in.get((sequence, server))  # None: it is new in the ring since then
            may_be = said.blind if life is None else server.life > life and (said.blind or unmarked)
            may_be = may_be or said.cut_off
            assert may_be, f"{first} in {sequence} after it was moved above {floor}"
            self.excepted += 1
        assert last <= self._ceilings[sequence], f"{last} is above the end of {sequence}"
        self._in_order(host, (sequence, server, whole), first, said)
        host.highest[sequence, server, whole] = last, said.unmarked
        for run in runs_of(tickets):
            assert server.has_drawn(sequence, run.first, run.last), (
                f"{run.first} to {run.last} were never drawn from {server.name}"
            )
            self.never_twice(host, sequence, run, said)

    def _in_order(self, host: Host, of: tuple[str, FakeServer, bool], first: int, said: Said) -> None:
        """Single tickets and lists increase, and so do blocks."""
        sequence, server, _ = of
        highest, unmarked = host.highest.get(of, (0, False))
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
                assert self._may_come_again(sequence, twice, other, said), (
                    f"{sequence}: {twice}, of {run} of {host.name} from {said.server.name}, "
                    f"had been given by {other.by} from {other.server.name}: {other.run}"
                )
                self.excepted += 1
        before.append(Issued(run, host.name, said.server, said.unmarked))

    def _may_come_again(self, sequence: str, ticket: int, before: Issued, said: Said) -> bool:
        if before.server is said.server:
            return (before.unmarked or said.blind) and len(said.server.lives_that_drew(sequence, ticket)) > 1
        gone_back = before.server.life > min(before.server.lives_that_drew(sequence, ticket))
        lost = gone_back or before.left or before.server not in self._ring()
        knew = said.server.life == self._life_when_well.get(said.server)  # else it is new, or empty, or old
        return (before.unmarked and lost) or (said.blind and not knew)

    # --- what is known ---------------------------------------------------------------------------------------------

    def moved_above(self, host: Host, sequence: str, above: int, lives: dict[FakeServer, int]) -> None:
        """A bump has been answered. `lives`: of the ring's databases when it was asked for."""
        if above <= self.floors.get(sequence, 0):
            return
        self.floors[sequence] = above
        for server, life in lives.items():
            self._moved_in[sequence, server] = life
            if host.refuses or not host.warns_of(server):
                self._marked_floors[sequence, server] = above

    def went_back(self, server: FakeServer) -> None:
        """What it kept about the others is old or gone, too."""
        for other in self._servers:
            if other is not server:
                self.knows[other, server] = False

    def left_ring(self, servers: list[FakeServer]) -> None:
        """These are out of it: nobody asks them any more what they have drawn."""
        self.runs = {
            sequence: [each._replace(left=each.left or each.server in servers) for each in issued]
            for sequence, issued in self.runs.items()
        }

    def all_is_well(self, ring: list[FakeServer], is_held: Callable[[str, Run], bool]) -> None:
        """Every database of the ring has been taken in by every ticket server: the others know where it stands now.

        `is_held`: whether any of a run lies in reserve, drawn once more while that was excepted, and will come again.
        """
        self.knows |= {(d, e): True for d, e in self.knows if d in ring and e in ring}
        self._life_when_well |= {server: server.life for server in ring}
        for sequence, issued in self.runs.items():
            stands = min(s.state.tables[sequence].counter if sequence in s.state.tables else 0 for s in ring)
            self.runs[sequence] = [
                each._replace(unmarked=each.unmarked and (each.run.last >= stands or is_held(sequence, each.run)))
                for each in issued
            ]
        for sequence, floor in self.floors.items():
            for server in ring:
                if sequence in server.state.tables and server.state.tables[sequence].counter > floor:
                    self._marked_floors[sequence, server] = floor
