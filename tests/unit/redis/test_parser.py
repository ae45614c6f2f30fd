"""Commands out of bytes, however they are cut."""

import contextlib
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.redis.parser import (
    AT_ONCE,
    LARGEST_BULK,
    LONGEST_LINE,
    MOST_ARGUMENTS,
    STRANGERS_ARGUMENTS,
    STRANGERS_BULK,
    Command,
    Incoming,
    Parser,
    ProtocolError,
)
from tests.unit.redis.redis_bench import INCR, command

words = st.binary(max_size=120) | st.sampled_from([b"INCR", b"photos", b"\r\n", b"*1\r\n$4\r\nPING\r\n", b"$", b""])
commands = st.lists(words, min_size=1, max_size=12)


def parsed(*reads: bytes, trusted: bool = True) -> list[Command]:
    """All commands in these reads, all of whose bytes are used up."""
    incoming = Incoming()
    found = everything(incoming, *reads, trusted=trusted)
    assert len(incoming) == 0
    return found


def everything(incoming: Incoming, *reads: bytes, trusted: bool = True) -> list[Command]:
    incoming.trusted = trusted
    found: list[Command] = []
    for read in reads:
        incoming.add(read)
        while (commands := incoming.take()) is not None:
            found += commands
    return found


@given(st.lists(commands, max_size=20), st.lists(st.integers(0, 3000), max_size=12))
def test_commands_come_out_as_they_went_in_wherever_they_are_cut(sent: list[Command], cuts: list[int]) -> None:
    data = b"".join(command(*each) for each in sent)
    places = sorted({min(cut, len(data)) for cut in cuts})
    reads = [data[begin:end] for begin, end in zip([0, *places], [*places, len(data)], strict=True)]
    assert parsed(*reads) == sent


@pytest.mark.parametrize("count", [1, 127, 128, 129, 1000])
def test_many_commands_in_one_read(count: int) -> None:
    assert parsed(INCR * count) == [[b"INCR", b"photos"]] * count


def test_a_command_comes_byte_by_byte() -> None:
    data = command("INCRBY", "photos", "1") + b"INCR photos\r\n" + command(*[b"x" * 300] * 9)
    expected = [[b"INCRBY", b"photos", b"1"], [b"INCR", b"photos"], [b"x" * 300] * 9]
    assert parsed(*[data[at : at + 1] for at in range(len(data))]) == expected


@settings(max_examples=300)
@given(st.binary(max_size=200) | st.text("*$-+:0123456789\r\nINCR photos\"'", max_size=100).map(str.encode))
def test_whatever_comes_makes_commands_or_one_known_error(data: bytes) -> None:
    incoming = Incoming()
    try:
        found = everything(incoming, data)
    except ProtocolError:
        incoming.clear()
        found = []
    assert all(type(word) is bytes for each in found for word in each)
    incoming.clear()
    assert everything(incoming, INCR) == [[b"INCR", b"photos"]]  # and nothing of it is left in the one parser


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"PING\r\n", [[b"PING"]]),
        (b"  INCR   photos \n", [[b"INCR", b"photos"]]),
        (b"\r\n\n", []),
        (b'ECHO "a b\\n\\x41\\""\n', [[b"ECHO", b'a b\nA"']]),
        (b"ECHO 'a\\'b c' d\n", [[b"ECHO", b"a'b c", b"d"]]),
        (b"*0\r\n*-1\r\nPING\n", [[b"PING"]]),
    ],
)
def test_commands_may_be_typed(line: bytes, expected: list[Command]) -> None:
    assert parsed(line) == expected


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"*1000000000\r\n", "invalid multibulk length"),
        (b"*%d\r\n" % (MOST_ARGUMENTS + 1), "invalid multibulk length"),
        (b"*x\r\n", "invalid multibulk length"),
        (b"*+1\r\n", "invalid multibulk length"),
        (b"*01\r\n$4\r\nPING\r\n", "invalid multibulk length"),
        (b"*-0\r\n", "invalid multibulk length"),
        (b"*1\r\n$04\r\nPING\r\n", "invalid bulk length"),
        (b"*2\r\n$4\r\nPING\r\n$00\r\n\r\n", "invalid bulk length"),
        (b"*2\r\n$4\r\nPING\r\n$-0\r\n\r\n", "invalid bulk length"),
        (b"*" + b"1" * 40, "too big mbulk count string"),
        (b"*1\r\n$" + b"1" * 40, "too big bulk count string"),
        (b"*1\r\n$536870912\r\n", "invalid bulk length"),
        (b"*1\r\n$%d\r\n" % (LARGEST_BULK + 1), "invalid bulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*2\r\n$4\r\nINCR\r\n*1\r\n$1\r\nx\r\n", "expected '$', got '*'"),
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (b"*1\r\n\x00", "expected '$', got '?'"),
        (b"*2\r\n$4\r\nINCR\r\n$5\r\nphotos\r\n", "expected CRLF after a bulk string"),
        (b"x" * (LONGEST_LINE + 1), "too big inline request"),
        (b"x" * (LONGEST_LINE + 1) + b"\n", "too big inline request"),
        (b'ECHO "a\n', "unbalanced quotes in request"),
        (b'ECHO "a"b\n', "unbalanced quotes in request"),
        (command(*[b"x" * LARGEST_BULK] * 3), "too big command"),
        (command(*[b"x" * LARGEST_BULK] * 3)[:140_000], "too big command"),
    ],
)
def test_what_is_malformed_or_too_large_is_named(data: bytes, words: str) -> None:
    with pytest.raises(ProtocolError) as raised:
        parsed(data)
    assert str(raised.value) == words
    assert parsed(INCR) == [[b"INCR", b"photos"]]  # on every other connection


written = st.sampled_from(["{}", "0{}", "-{}", "+{}", " {}", "{} ", "{}.0", "00{}", "-0{}"])


@settings(max_examples=500)
@given(written, st.lists(st.tuples(written, st.binary(max_size=12)), max_size=10))
def test_however_numbers_are_written_the_next_connection_is_served(
    count: str, arguments: list[tuple[str, bytes]]
) -> None:
    data = b"*" + count.format(len(arguments)).encode() + b"\r\n"
    for size, word in arguments:
        data += b"$" + size.format(len(word)).encode() + b"\r\n" + word + b"\r\n"
    with contextlib.suppress(ProtocolError):
        everything(Incoming(), data)
    assert parsed(INCR) == [[b"INCR", b"photos"]]


def test_a_parser_that_was_given_nonsense_parses_on() -> None:
    parser = Parser()
    with pytest.raises(ProtocolError, match="the command cannot be read"):
        parser.commands(b"*01\r\n$4\r\nPING\r\n")
    assert parser.commands(INCR) == [[b"INCR", b"photos"]]


def test_what_is_allowed_is_as_large_as_it_says() -> None:
    largest = [b"ECHO", b"x" * LARGEST_BULK]
    many = [b"EXISTS", *[b"x"] * (MOST_ARGUMENTS - 1)]
    assert parsed(command(*largest) + command(*many)) == [largest, many]


def test_a_large_command_is_passed_over_a_few_arguments_at_a_time() -> None:
    incoming = Incoming()
    incoming.trusted = True
    incoming.add(command(*[b"x"] * 4_000))
    taken = 0
    while not (commands := incoming.take()):
        assert commands == []
        taken += 1
    assert commands == [[b"x"] * 4_000]
    assert taken == 4_000 // AT_ONCE
    assert incoming.take() is None


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"*%d\r\n" % (STRANGERS_ARGUMENTS + 1), "unauthenticated multibulk length"),
        (b"*1\r\n$%d\r\n" % (STRANGERS_BULK + 1), "unauthenticated bulk length"),
        (command("AUTH", b"x" * (STRANGERS_BULK + 1)), "unauthenticated bulk length"),
    ],
)
def test_strangers_may_send_less(data: bytes, words: str) -> None:
    everything(Incoming(), data)
    with pytest.raises(ProtocolError) as raised:
        everything(Incoming(), data, trusted=False)
    assert str(raised.value) == words


def test_what_is_announced_takes_no_memory() -> None:
    halves = [b"*1000000000\r\n", b"*4096\r\n", b"*1\r\n$536870912\r\n", b"*1\r\n$65536\r\nx", b"*1\r\n" * 50]
    incomings = [Incoming() for _ in range(5_000)]
    tracemalloc.start()
    try:
        for number, incoming in enumerate(incomings):
            try:
                everything(incoming, halves[number % len(halves)])
            except ProtocolError:
                incoming.clear()
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
