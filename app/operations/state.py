"""The state of a running server, as the report, the warnings and the metrics read it."""

from app.service import Service
from app.tickets.catalog import Entry
from app.tickets.lane import Lane
from app.tickets.sight import Member, Status


class State:
    """Reads the state of a server. is_draining: whether it is about to end; the server sets it."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.is_draining = False

    @property
    def step(self) -> int:
        """The ring's increment; the number of databases while the ring is not known."""
        record = self.service.sight.record
        return record.increment if record is not None else len(self.service.sight.members)

    def is_ready(self) -> bool:
        """Whether the server can hand out ids of any sequence, and is not draining."""
        service, sight = self.service, self.service.sight
        if self.is_draining:
            return False
        may_draw = sight.stamp is not None and any(
            member.life is not None and not (service.options.refuses and self.unprotected(member))
            for member in sight.members
        )
        return (
            may_draw
            or service.memory.gives
            or any(
                lane.stock.size and not (service.options.refuses and lane.is_unprotected) for lane in service.desk.lanes
            )
        )

    def unprotected(self, member: Member) -> str | None:
        """Return why what this database draws now could come twice if it came back older; None where it could not."""
        sight = self.service.sight
        if member.status is not Status.UP or self.service.options.embedded:
            return None
        if len(sight.members) == 1:
            return "unprotected: it is the only ticket database, so none keeps its high-water marks"
        if sight.alone(member):
            return "unprotected: no other ticket database can keep its high-water marks now"
        if not sight.whole and any(lane.member is member and lane.is_unprotected for lane in self.service.desk.lanes):
            return "unprotected: sequences were opened there while a database of the ring was away, which still is"
        return None

    def lanes(self, entry: Entry) -> dict[Member, Lane]:
        """Return the lanes of a sequence, if somebody asked for it."""
        source = self.service.desk.source(entry.key)
        return {lane.member: lane for lane in source.lanes} if source is not None else {}

    def last(self, entry: Entry, member: Member) -> int:
        """Return the largest number that this database's counter of a sequence is known to have passed; 0 for none."""
        counter, lane = entry.counters.get(member), self.lanes(entry).get(member)
        return max(counter.position if counter is not None else 0, lane.highest if lane is not None else 0)
