"""The tickets of a scenario test, one request after the other, held against the server's promises at every step."""

import time
from collections.abc import Sequence

from tests.harness import history
from tests.harness.history import Answer, Kind
from tests.harness.load import Want, read_ids
from tests.harness.processes import wait_until
from tests.harness.ticketd import TicketServer

KINDS: tuple[tuple[Kind, int], ...] = (("single", 1), ("count", 7), ("block", 150))


class Notebook:
    """Takes tickets of one sequence and writes every answer down. `check` holds all of it against the promises."""

    def __init__(self, sequence: str = "photos", increment: int = 2) -> None:
        self.sequence = sequence
        self.increment = increment
        self.answers: list[Answer] = []

    def ask(self, server: TicketServer, kind: Kind = "single", size: int = 1) -> Answer:
        """One request, whatever comes of it."""
        want = Want(self.sequence, kind, size)
        asked_at = time.monotonic()
        reply = server.get(want.path)
        ids: Sequence[int] = read_ids(want, reply.body) if reply.status == 200 else ()
        error = "" if reply.status == 200 else reply.text[:300]
        answer = Answer(self.sequence, server.name, kind, size, asked_at, time.monotonic(), reply.status, ids, error)
        self.answers.append(answer)
        return answer

    def take(self, server: TicketServer, kind: Kind = "single", size: int = 1) -> Sequence[int]:
        """The ids of one request; anything but a 200 fails."""
        answer = self.ask(server, kind, size)
        assert answer.status == 200, (answer.status, answer.error)
        return answer.ids

    def take_all_kinds(self, *servers: TicketServer, rounds: int = 2) -> None:
        """Singles, counts and blocks from each server in turn; each database has its turn of each kind."""
        for _ in range(rounds):
            for server in servers:
                for kind, size in KINDS:
                    for _ in range(2):
                        self.take(server, kind, size)

    def take_from(self, server: TicketServer, offset: int, timeout: float = 15) -> int:
        """Take single tickets until the database of this offset gives one."""
        found: list[int] = []

        def comes() -> bool:
            (ticket,) = self.take(server)
            if ticket % self.increment == offset % self.increment:
                found.append(ticket)
            return bool(found)

        try:
            wait_until(comes, timeout, f"a ticket of offset {offset} from {server!r}")
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {server.get('/healthz').text}\n{server.log_text()[-3000:]}") from error
        return found[0]

    def highest(self, offset: int) -> int:
        """The largest ticket of this offset so far, 0 if there is none."""
        return max((i for a in self.answers for i in a.ids if i % self.increment == offset % self.increment), default=0)

    def write_down(self, answers: Sequence[Answer]) -> None:
        """Add what a load has recorded."""
        self.answers += answers

    def check(self) -> None:
        """Fail with the first broken promises, if there are any."""
        found = history.violations(self.answers, increment=self.increment)
        assert not found, f"{len(found)} violations:\n" + "\n".join(map(str, found[:20]))
        assert history.tickets(self.answers), "not one ticket"
