"""What every engine's session promises about ids and counters."""

import asyncio
import itertools

import pytest

from app.databases.session import EMPTIED, ENDS, Counter, Drawn, Residue, Session, Want, most_ids
from app.errors import DatabaseError, SequenceBusy, SequenceExhausted, SequenceMissing, SequenceUnusable
from tests.engines.bench import EVEN, ODD, Bench, counter, draw, drawn, ids

DEEDS = ("empty", "remove", "drop")
"""What makes a sequence anew, together with `Session.make`, see `Bench.do`."""


async def make(session: Session, name: str, bits: int, above: int) -> Counter:
    """Make a sequence and read its counter, as a caller does before it raises the counter or draws."""
    await session.make(name, bits, above)
    return await counter(session, name)


def rise(numbers: list[int]) -> bool:
    return all(before < after for before, after in itertools.pairwise(numbers))


@pytest.mark.parametrize("residue", [ODD, EVEN, Residue(2, 3)])
async def test_ids_are_of_the_residue_and_rise_and_nothing_is_skipped_at_first(bench: Bench, residue: Residue) -> None:
    session = await bench.open(residue)
    for name in ("photos", "groups"):
        await make(session, name, 64, 0)
    given = await draw(session, "photos")
    assert given == [residue.offset]
    for count in (1, 2, 8, 9, 1000, 1, 10_000, 7, most_ids(residue.increment), 1):
        given += await draw(session, "photos", count, last=given[-1])
    for count, last in ((10_000, 1), (8, 0)):  # the caller does not know where the counter stands
        given += await draw(session, "photos", count, last=last)
    for count, above in ((1, 1_000_000), (5, 10), (2_000, 5_000_000), (1, 0)):
        given += await draw(session, "photos", count, above, given[-1])
    one, two = await session.draw([Want("photos", 1, 7_000_000), Want("groups", 3, 1 << 53)])
    assert rise(given + ids(one, session, above=7_000_000))
    assert ids(two, session, 3, above=1 << 53)


async def test_sessions_that_draw_at_the_same_time_never_get_the_same_id(bench: Bench) -> None:
    sessions = [await bench.open(residue) for residue in (ODD, ODD, EVEN)]
    await sessions[0].make("photos", 64, 0)

    async def draw_some(session: Session) -> list[int]:
        given = [0]
        for count in (1, 3, 200, 1, 40, 1, 8, 1) * 3:
            given += await draw(session, "photos", count, last=given[-1])
        assert rise(given)
        return given[1:]

    given = list(itertools.chain(*await asyncio.gather(*map(draw_some, sessions))))
    assert len(given) == len(set(given))


@pytest.mark.parametrize("lock", ["lock", "lock_row"])
async def test_what_is_wrong_with_one_sequence_of_a_draw_does_not_concern_the_others(bench: Bench, lock: str) -> None:
    session = await bench.open(ODD, seconds=1)
    for name in ("photos", "accounts", "groups", "albums"):
        await make(session, name, 32, 0)
        await draw(session, name)
    await session.raise_above({"groups": ENDS[32]})
    wanted = [Want("photos", 1), Want("absent", 1), Want("albums", 2), Want("groups", 1), Want("groups", 30)]
    async with asyncio.timeout(20):
        with bench.lock(lock, "albums"):
            results = await session.draw([*wanted, Want("accounts", 500)])
            if lock == "lock":  # MySQL cannot read a table that is locked as a whole
                found = await session.sequences(["albums", "accounts"])
                assert isinstance(found["albums"], Counter | SequenceBusy)
                assert isinstance(found["accounts"], Counter)
            else:
                raised = await session.raise_above({"albums": 5, "accounts": 5})
                assert isinstance(raised["albums"], SequenceBusy) == bench.has_locks
                assert raised["accounts"] is None
    kinds = [Drawn, SequenceMissing, SequenceBusy if bench.has_locks else Drawn, *[SequenceExhausted] * 2, Drawn]
    assert [type(each) for each in results] == kinds
    assert rise([1, *ids(results[0], session)])
    assert rise([1, *ids(results[-1], session, 500)])
    assert rise([1, *await draw(session, "albums", last=1)])


async def test_no_id_passes_the_ceiling_that_was_asked_for_and_fewer_still_fit(bench: Bench) -> None:
    session = await bench.open(ODD)
    await session.make("photos", 64, 1000)
    for count, above, result in ((500, 0, SequenceExhausted), (1, 0, 1001), (1, 1100, SequenceExhausted)):
        assert await drawn(session, Want("photos", count, above, ceiling=1100)) == [result]


@pytest.mark.parametrize("residue", [ODD, EVEN])
@pytest.mark.parametrize("bits", ENDS)
async def test_a_sequence_ends_with_its_last_id(bench: Bench, bits: int, residue: Residue) -> None:
    sessions = itertools.cycle([await bench.open(residue), session := await bench.open(residue)])
    await session.make("photos", bits, ENDS[bits] - 10)
    found = await counter(session, "photos")
    assert found.bits == bits
    assert ENDS[bits] - residue.increment <= found.ceiling <= ENDS[bits]
    assert await drawn(session, Want("photos", 100, ceiling=found.ceiling)) == [SequenceExhausted]
    given = []
    for session in itertools.islice(sessions, 20):
        (result,) = await session.draw([Want("photos", 1, ceiling=found.ceiling)])
        given += ids(result, session) if isinstance(result, Drawn) else []
    assert rise(given)
    assert len(given) >= 4
    assert found.ceiling - 2 * residue.increment <= given[-1] <= found.ceiling
    for want in (Want("photos", 1, 0, given[-1]), Want("photos", 10, 0, 5), Want("photos", 1, given[-1])):
        assert await drawn(session, want._replace(ceiling=found.ceiling)) == [SequenceExhausted]


async def test_a_counter_is_raised_and_never_lowered(bench: Bench) -> None:
    session, other = await bench.open(ODD), await bench.open(EVEN)
    for name in ("photos", "Groups", "accounts"):
        await make(session, name, 32, 0)
    raised = await session.raise_above({"photos": 500, "Groups": 1 << 31, "absent": 7, "accounts": ENDS[32]})
    assert isinstance(raised.pop("absent"), SequenceMissing)
    assert raised == dict.fromkeys(("photos", "Groups", "accounts"))
    assert await draw(other, "photos") == [502]
    assert await draw(session, "Groups", above=3) == [(1 << 31) + 1]
    assert await session.raise_above({"photos": 100, "Groups": 0}) == {"photos": None, "Groups": None}
    assert rise([502, *await draw(session, "photos")])
    assert await drawn(session, Want("accounts", 1)) == [SequenceExhausted]


async def test_a_sequence_is_made_once_and_keeps_the_name_that_it_was_made_with(bench: Bench) -> None:
    sessions = [await bench.open(ODD) for _ in range(3)]
    name = "P" + "n" * 63
    await asyncio.gather(*(session.make(name, 32, 7) for session in sessions))
    assert (await counter(sessions[0], name)).position >= 7
    for other in (name, name.lower(), name.upper()):
        await sessions[0].make(other, 64, 1_000_000)
    (found,) = (await sessions[0].sequences(None)).values()
    assert isinstance(found, Counter)
    assert (found.name, found.bits) == (name, 32)
    assert [await draw(session, name) for session in sessions] == [[9], [11], [13]]


async def test_the_position_covers_what_was_drawn_and_is_0_before(bench: Bench) -> None:
    session, other = await bench.open(ODD), await bench.open(None)
    assert await session.sequences(None) == await session.sequences(["photos"]) == {}
    for name in ("photos", "groups"):
        await session.make(name, 64, 0)
    assert (await counter(other)).position == 0
    for count in (1, 1000, 1):
        given = await draw(session, "photos", count)
        position = (await counter(other)).position
        assert rise([given[-1] - 1, position, *await draw(session, "photos", last=given[-1])])
    assert set(await other.sequences(None)) == {"photos", "groups"}
    assert set(await other.sequences(["groups", "absent"])) == {"groups"}


async def test_the_birth_changes_when_the_sequence_is_made_anew_and_only_then(bench: Bench) -> None:
    session = await bench.open(ODD)
    first = (await make(session, "photos", 64, 0)).birth
    given = await draw(session, "photos", 100)
    await session.raise_above({"photos": 1000})
    assert (await counter(session)).birth == first
    bench.do("empty", "photos")
    emptied = await counter(session)
    assert emptied.position < given[-1]
    bench.do("drop", "photos")
    assert await drawn(session, Want("photos", 1)) == [SequenceMissing]
    assert await session.sequences(["photos"]) == {}
    assert len({first, emptied.birth, (await make(session, "photos", 64, 20)).birth}) == 3
    assert await draw(session, "photos", last=given[-1]) == [21]


async def test_a_sequence_made_by_hand_is_served_unless_its_name_differs_from_another_by_case(bench: Bench) -> None:
    session = await bench.with_photos()
    bench.do("add", "Old", 1001)
    found = await counter(session, "old")
    assert (found.name, found.position >= 1001) == ("Old", True)
    assert rise([1001, *await draw(session, "Old")])
    bench.do("add", "Photos", 5)
    for names in (None, ["photos", "old"]):
        counters = await session.sequences(names)
        assert isinstance(counters["photos"], SequenceUnusable)
        assert isinstance(counters["old"], Counter)


async def test_a_counter_that_was_set_back_shows_it_and_the_hint_of_the_caller_does_no_harm(bench: Bench) -> None:
    session = await bench.with_photos()
    given = await draw(session, "photos", 1000)
    bench.do("set_back", "photos", 10)
    assert (await counter(session, "photos")).position < 100
    again = await draw(session, "photos", 100, last=given[-1])
    again += await draw(session, "photos", last=again[-1])
    assert rise(again)
    assert rise([given[-1], *await draw(session, "photos", above=given[-1], last=given[-1])])


@pytest.mark.parametrize(("known", "is_read"), [(0, False), (0, True), (1_000, False), (1_000, True)])
async def test_who_has_drawn_nothing_gets_nothing_of_a_table_made_anew(bench: Bench, known: int, is_read: bool) -> None:
    idle, busy = [await bench.open(ODD) for _ in range(2)]
    for deed in DEEDS:
        name = f"photos_{deed}"
        birth = (await make(busy, name, 64, 0)).birth
        await idle.raise_above({name: known})
        want = Want(name, 1, known, known, birth=birth)
        (first,) = await busy.draw([want])
        assert rise([known, *ids(first, busy)])
        bench.do(deed, name)
        await busy.make(name, 64, 0)
        if is_read:
            assert (await counter(busy, name)).birth != birth
        assert await drawn(idle, want) == [SequenceMissing]
        found = await counter(busy, name)
        assert found.birth != birth
        assert await draw(busy, name, last=found.position)


@pytest.mark.parametrize("above", [0, 1_000_000])
@pytest.mark.parametrize("count", [1, 100])
async def test_who_has_drawn_gets_nothing_of_a_table_made_anew_and_does_not_raise_its_counter(
    bench: Bench, above: int, count: int
) -> None:
    sessions = [await bench.open(ODD) for _ in range(2)]

    async def draw_again(above: int) -> list[Drawn | DatabaseError]:
        wanted = [Want(name, count, above, last, drawn=True) for last in lasts]
        return [(await session.draw([want]))[0] for session, want in zip(sessions, wanted, strict=True)]

    for deed in DEEDS:
        name = f"photos_{deed}"
        await make(sessions[0], name, 64, 0)
        lasts = [(await draw(session, name, above=1_000))[-1] for session in sessions]
        lasts = [ids(each, sessions[0], count, 2_000)[-1] for each in await draw_again(2_000)]
        bench.do(deed, name)
        await sessions[0].make(name, 64, 0)
        results = await draw_again(above)
        for result in results if above else results[:1]:
            assert isinstance(result, SequenceMissing)
            assert str(result) == EMPTIED
        assert (await counter(sessions[0], name)).position < 1_000_000
        if above:
            assert all(isinstance(each, SequenceMissing) for each in await draw_again(above))
        await sessions[1].raise_above({name: 2_000_000})
        assert all(isinstance(each, Drawn) for each in await draw_again(3_000_000))
