"""What one sequence's servers have given: nothing is taken twice, whoever gives it, and the step stays what it was."""

from __future__ import annotations

import random

import pytest

from ticketd_client.answers import AttemptFailed, Block, Ticket
from ticketd_client.given import DOUBTED, REMEMBERED, SINGLES, Given

URL = "http://one"


def refuses_block(given: Given, block: Block, url: str = URL) -> bool:
    try:
        given.take_block(block, url)
    except AttemptFailed:
        return True
    return False


def refuses_singles(given: Given, *tickets: Ticket) -> bool:
    try:
        given.take_singles(tickets)
    except AttemptFailed:
        return True
    return False


@pytest.mark.parametrize("seed", range(20))
def test_of_one_step_exactly_what_was_given_is_refused(seed: int) -> None:
    """Blocks and single tickets at random, against a set of all that was given."""
    chance, given = random.Random(seed), Given()
    known: set[int] = set()
    for _ in range(300):
        first, size = chance.randint(1, 400), chance.choice([1, 1, 2, 5, 20])
        if chance.random() < 0.3:
            ids = {first, first + 3}
            refused = refuses_singles(given, *ids)
        else:
            block = Block(first, 2, size)
            ids = set(block.ids)
            refused = refuses_block(given, block)
        assert refused == bool(ids & known)
        if not refused:
            known |= ids


@pytest.mark.parametrize("seed", range(20))
def test_of_several_steps_whatever_was_given_is_refused(seed: int) -> None:
    """As the ring grows. Of a block that shares no ticket, but lies among others, it may refuse too much."""
    chance, given = random.Random(seed), Given(lambda: 0.0)
    known: set[int] = set()
    for _ in range(300):
        block = Block(chance.randint(1, 2_000), chance.choice([2, 4, 6]), chance.choice([1, 2, 7]))
        first = refuses_block(given, block, "http://one")
        refused = first and refuses_block(given, block, "http://other")  # the second confirms the step
        if not refused:
            assert not known & set(block.ids)
            known |= set(block.ids)
    assert len(known) > 100


def test_a_ticket_out_of_a_block_is_refused_alone_and_the_other_way_round() -> None:
    given = Given()
    given.take_block(Block(101, 2, 10), URL)
    assert refuses_singles(given, 119)
    assert not refuses_singles(given, 120, 121)
    assert refuses_block(given, Block(121, 2, 1))
    assert not refuses_block(given, Block(123, 2, 1))
    with pytest.raises(AttemptFailed, match="gave the block 117 to 123, of which 101 to 119 have been given before"):
        given.take_block(Block(117, 2, 4), URL)


def test_blocks_that_touch_are_one_stretch_in_memory() -> None:
    many = 2 * REMEMBERED
    for order in (range(many), reversed(range(many))):
        given = Given()
        for number in order:
            given.take_block(Block(1 + 20 * number, 2, 10), URL)
        assert all(refuses_block(given, Block(1 + 20 * number, 2, 10)) for number in (0, 7, many - 1))


def test_the_memory_is_bounded() -> None:
    given = Given()
    for number in range(REMEMBERED + 1):
        given.take_block(Block(1 + 40 * number, 2, 10), URL)
    assert refuses_block(given, Block(41, 2, 10))
    assert not refuses_block(given, Block(1, 2, 10)), "the lowest is forgotten"
    given.take_singles(range(1_000_000, 1_000_000 + 2 * SINGLES, 2))
    assert refuses_singles(given, 1_000_000)
    given.take_singles([2_000_000])
    assert not refuses_singles(given, 1_000_000), "the oldest is forgotten"


def test_a_changed_step_is_believed_if_nobody_says_anything_else_for_a_while() -> None:
    now = 0.0
    given = Given(lambda: now)
    given.take_block(Block(1, 2, 10), URL)
    assert refuses_block(given, Block(1_001, 4, 10))
    now = DOUBTED - 0.1
    assert refuses_block(given, Block(1_001, 4, 10))
    now = DOUBTED
    assert not refuses_block(given, Block(1_001, 4, 10))


def test_a_doubt_ends_where_somebody_gives_the_step_that_is_known() -> None:
    now = 0.0
    given = Given(lambda: now)
    given.take_block(Block(1, 2, 10), "http://honest")
    assert refuses_block(given, Block(1_001, 4, 10), "http://liar")
    now = DOUBTED - 0.1
    given.take_block(Block(21, 2, 10), "http://honest")
    now = DOUBTED
    assert refuses_block(given, Block(1_001, 4, 10), "http://liar")
