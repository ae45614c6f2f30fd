"""The checker: what clients have recorded, held against what the server promises. Pure; no I/O.

A history is a list of answers. `violations` finds every broken promise:

    duplicates      no ticket of a sequence twice, whoever got it and however (single, count, block)
    malformed       the ids an answer carries are as many as asked for, increasing, and of the offsets that there are;
                    a block has the increment as its step
    disorder        the tickets one server gets from one database increase, blocks by themselves: of two requests to one
                    server, the second asked when the first had been answered, the second's id is the larger one.
                    Requests that overlap in time may come out in any order. The database of an id is known by its
                    residue.

Histories may hold millions of tickets and blocks of ten thousand: everything is done on runs of ids, not on ids.
"""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

Kind = Literal["single", "count", "block"]


class Answer(NamedTuple):
    """One request and what came of it.

    `asked_at` is taken before the first byte is sent, `arrived_at` after the last one was read; one clock for all.
    `status` is 0 where no answer came, and `error` says why; the tickets of such a request are gaps. `server` names
    the server that answered, `expected` is how many tickets were asked for.
    """

    sequence: str
    server: str
    kind: Kind
    expected: int
    asked_at: float
    arrived_at: float
    status: int
    ids: Sequence[int] = ()
    error: str = ""

    @property
    def took(self) -> float:
        return self.arrived_at - self.asked_at


class Violation(NamedTuple):
    """One broken promise, in words, with the answers that show it."""

    promise: Literal["duplicate", "malformed", "disorder"]
    sequence: str
    what: str
    answers: tuple[Answer, ...]

    def __str__(self) -> str:
        return f"{self.promise} in {self.sequence}: {self.what}"


class _Run(NamedTuple):
    """Ids `first`, `first + increment`, … `last` of one answer."""

    first: int
    last: int
    answer: Answer


def violations(
    history: Iterable[Answer], *, increment: int = 2, offsets: Iterable[int] | None = None
) -> list[Violation]:
    """Every broken promise in this history of databases with these offsets (all up to the increment, if not given)."""
    answers = list(history)
    return [*malformed(answers, increment, offsets), *duplicates(answers, increment), *disorder(answers, increment)]


def duplicates(history: Iterable[Answer], increment: int = 2) -> list[Violation]:
    """Tickets that were handed out more than once."""
    by_database: dict[tuple[str, int], list[_Run]] = defaultdict(list)
    for answer in history:
        for run in runs_of(answer, increment):
            by_database[answer.sequence, run.first % increment].append(run)
    found = []
    for (sequence, _), runs in by_database.items():
        runs.sort(key=lambda run: (run.first, run.last))
        highest = runs[0]
        for run in runs[1:]:
            if run.first <= highest.last:
                until = min(run.last, highest.last)
                ids = f"{run.first}" if until == run.first else f"{run.first} to {until} in steps of {increment}"
                what = f"{ids} handed out twice, by {highest.answer.server} and by {run.answer.server}"
                found.append(Violation("duplicate", sequence, what, (highest.answer, run.answer)))
            if run.last > highest.last:
                highest = run
    return found


def malformed(history: Iterable[Answer], increment: int = 2, offsets: Iterable[int] | None = None) -> list[Violation]:
    """Answers whose ids are too few, too many, not increasing, not positive, or nobody's; blocks with another step."""
    residues = {offset % increment for offset in (offsets or range(1, increment + 1))}
    found = []
    for answer in history:
        if answer.status != 200:
            if answer.ids:
                found.append(_malformed(answer, f"a {answer.status} with tickets"))
            continue
        ids = answer.ids
        if len(ids) != answer.expected:
            found.append(
                _malformed(
                    answer, f"{answer.expected} tickets expected, {len(ids)} given{answer.error and ' '}{answer.error}"
                )
            )
        if not ids:
            continue
        if isinstance(ids, range):
            bad_order = ids.step <= 0
            bad_step = len(ids) > 1 and ids.step != increment
            nobodys = [i for i in (ids[0], ids[-1]) if i % increment not in residues]
        else:
            bad_order = any(later <= earlier for earlier, later in pairwise(ids))
            bad_step = False
            nobodys = [i for i in ids if i % increment not in residues]
        if bad_order:
            found.append(_malformed(answer, "ids that do not increase"))
        if bad_step:
            found.append(_malformed(answer, f"a block's step that is not the increment {increment}"))
        if nobodys:
            found.append(_malformed(answer, f"{nobodys[0]} is of no database's offset"))
        if min(ids[0], ids[-1]) < 1:
            found.append(_malformed(answer, "an id below 1"))
    return found


def disorder(history: Iterable[Answer], increment: int = 2) -> list[Violation]:
    """Ids at or below one that the same server had already handed out, from the same database, before it was asked."""
    groups: dict[tuple[str, str, bool, int], list[_Run]] = defaultdict(list)
    for answer in history:
        spans: dict[int, _Run] = {}
        for run in runs_of(answer, increment):
            residue = run.first % increment
            span = spans.get(residue, run)
            spans[residue] = _Run(min(run.first, span.first), max(run.last, span.last), answer)
        for residue, span in spans.items():
            groups[answer.sequence, answer.server, answer.kind == "block", residue].append(span)
    found = []
    for (sequence, server, *_), spans_asked in groups.items():
        spans_asked.sort(key=lambda span: span.answer.asked_at)
        arriving: list[tuple[float, int, _Run]] = []  # not yet arrived when the present one was asked
        highest: _Run | None = None
        for number, span in enumerate(spans_asked):
            while arriving and arriving[0][0] < span.answer.asked_at:
                arrived = heapq.heappop(arriving)[2]
                if highest is None or arrived.last > highest.last:
                    highest = arrived
            if highest is not None and span.first <= highest.last:
                what = f"{span.first} came from {server} after {highest.last} had come from it"
                found.append(Violation("disorder", sequence, what, (highest.answer, span.answer)))
            heapq.heappush(arriving, (span.answer.arrived_at, number, span))
    return found


def tickets(history: Iterable[Answer]) -> int:
    """How many tickets were handed out."""
    return sum(len(answer.ids) for answer in history)


def statuses(history: Iterable[Answer]) -> Counter[int]:
    """How many answers of each status; 0 is a request that got none."""
    return Counter(answer.status for answer in history)


def failures(history: Iterable[Answer]) -> list[Answer]:
    """Every request that got no tickets."""
    return [answer for answer in history if answer.status != 200]


def slowest(history: Iterable[Answer]) -> float:
    """The longest that any request took, in seconds."""
    return max((answer.took for answer in history), default=0.0)


def percentile(history: Iterable[Answer], share: float) -> float:
    """What this share of the requests did not take longer than, in seconds."""
    times = sorted(answer.took for answer in history)
    if not times:
        return 0.0
    return times[min(len(times) - 1, max(0, math.ceil(share * len(times)) - 1))]


def between(history: Iterable[Answer], begin: float, end: float) -> list[Answer]:
    """The requests asked in this stretch of time."""
    return [answer for answer in history if begin <= answer.asked_at < end]


def longest_outage(history: Iterable[Answer], begin: float, end: float) -> float:
    """The longest stretch from `begin` to `end` in which no tickets arrived, in seconds."""
    arrived = sorted(
        answer.arrived_at for answer in history if answer.status == 200 and begin <= answer.arrived_at < end
    )
    return max(later - earlier for earlier, later in pairwise([begin, *arrived, end]))


def _malformed(answer: Answer, what: str) -> Violation:
    return Violation("malformed", answer.sequence, f"{what}, from {answer.server}", (answer,))


def runs_of(answer: Answer, increment: int) -> Iterator[_Run]:
    """The answer's ids as runs of one residue each, in steps of the increment."""
    ids = answer.ids
    if isinstance(ids, range) and ids and ids.step == increment:
        yield _Run(ids[0], ids[-1], answer)
        return
    runs: dict[int, tuple[int, int]] = {}
    for i in ids:
        residue = i % increment
        run = runs.get(residue)
        if run is not None and i == run[1] + increment:
            runs[residue] = (run[0], i)
            continue
        if run is not None:
            yield _Run(*run, answer)
        runs[residue] = (i, i)
    for run in runs.values():
        yield _Run(*run, answer)
