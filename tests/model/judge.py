"""What a schedule may not do: the judge keeps every id that was given and finds what contract.md forbids.

Guarantee 1 excepts some ids. The judge excuses two that are the same only if one of the two was excepted when it was
given, and only if the database had really gone back, or really had a twin, between the two.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

LONGEST_STOCK = 25.0
"""Seconds before an answer in which its ids may have been drawn: they were in stock, or waited for a look."""


@dataclass(frozen=True, slots=True)
class Issue:
    """One answer with ids: the ids `first`, `first + step`, … to `last`.

    server: the run of a ticket server. offset: of the database that drew them. at, asked: the true time of the answer
    and of the request. unprotected: whether the server warned of that at this moment. isolated: whether it drew from
    data that had been replaced, and reached no database that recorded the replacement. block: whether it is a block.
    """

    sequence: str
    ids: range | tuple[int, ...]
    server: str
    offset: int
    asked: float
    at: float
    unprotected: bool
    isolated: bool
    block: bool

    @property
    def is_excepted(self) -> bool:
        """Whether guarantee 1 says nothing of it, once the database has gone back."""
        return self.unprotected or self.isolated

    def __str__(self) -> str:
        words = "".join(f", {word}" for word in ("unprotected", "isolated") if getattr(self, word))
        return f"{self.sequence} {self.ids[0]} to {self.ids[-1]} by {self.server} at {self.at:.3f}{words}"


@dataclass
class Judge:
    """Collects what was given and done. `faults` has what was wrong, in words."""

    note: Callable[[object, str], None]
    now: Callable[[], float]
    faults: list[str] = field(default_factory=list)
    count: int = 0
    """How many ids were given."""
    repeated: int = 0
    """How many ids were given twice and are excused."""
    _given: dict[str, dict[int, list[Issue]]] = field(default_factory=lambda: defaultdict(dict))
    _last: dict[tuple[str, str, int, bool], int] = field(default_factory=dict)
    _back: dict[int, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    _set_back: dict[tuple[str, int], list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    _above: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))

    def went_back(self, offset: int, until: float = 0.0) -> None:
        """The data at an offset has gone back; or it has a twin from now on, until then."""
        self._back[offset].append((self.now(), max(self.now(), until)))

    def set_back(self, sequence: str, offset: int, issued: int) -> None:
        """A counter was set back while its marks said that this much was issued: what was issued since may repeat."""
        self._set_back[sequence, offset].append((self.now(), issued))

    def bumped(self, sequence: str, above: int) -> None:
        """A server has answered a bump."""
        self._above[sequence].append((self.now(), above))

    def fault(self, what: str) -> None:
        """Something happened that must not happen."""
        self.note("judge", f"WRONG: {what}")
        self.faults.append(what)

    def issue(self, issue: Issue) -> None:
        """Some ids were handed out."""
        self.note(issue.server, f"gives {issue}")
        given = self._given[issue.sequence]
        for number in issue.ids:
            before = given.get(number)
            if before is None:
                given[number] = [issue]
            else:
                self._compare(number, before, issue)
                before.append(issue)
        self.count += len(issue.ids)
        self._check_order(issue)
        for at, above in self._above.get(issue.sequence, ()):
            is_excused = issue.is_excepted and self._went_back(issue.offset, at, issue.at)
            if issue.asked >= at and issue.ids[0] <= above and not is_excused:
                self.fault(f"not above the bump to {above} answered at {at:.3f}: {issue}")

    def _went_back(self, offset: int, since: float, until: float) -> bool:
        """Whether the data at this offset went back, or had a twin, between these times."""
        return any(began <= until and ended >= since for began, ended in self._back[offset])

    def _compare(self, number: int, before: list[Issue], issue: Issue) -> None:
        for other in before:
            excepted = other.is_excepted or issue.is_excepted
            drawn = other.at - LONGEST_STOCK
            # in a ring that has grown, another database gives the number
            back = any(self._went_back(each.offset, drawn, issue.at) for each in (other, issue))
            unseen = any(
                drawn <= at <= issue.at and number > issued
                for at, issued in self._set_back[issue.sequence, issue.offset]
            )
            if not ((excepted and back) or unseen):
                self.fault(f"{number} was given twice: {other}; {issue}")
                return
        self.repeated += 1

    def _check_order(self, issue: Issue) -> None:
        """Guarantee 4: what one server gives from one database rises; blocks by themselves."""
        key = issue.sequence, issue.server, issue.offset, issue.block
        if issue.ids[0] <= self._last.get(key, 0) or any(
            a >= b for a, b in zip(issue.ids, issue.ids[1:], strict=False)
        ):
            self.fault(f"not in order behind {self._last.get(key)}: {issue}")
        self._last[key] = issue.ids[-1]
