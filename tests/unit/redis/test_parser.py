"""Commands out of bytes, however they are cut."""

import pytest

from app.redis.parser import Command, next_command, only_row

INCR = b"*2\r\n$4\r\nINCR\r\n$6\r\nphotos\r\n"
LARGE = [b"ECHO", b"x" * 4_000]
SENT = (
    INCR
    + b"\r\nPING a  c\r\n*0\r\n"
    + b"*1\r\n$4\r\nPING\r\n"
    + b"*10\r\n"
    + b"$1\r\n\n\r\n" * 10
    + b"*2\r\n$4\r\nECHO\r\n$4000\r\n%b\r\n" % LARGE[1]
)
WANTED = [[b"INCR", b"photos"], [b"PING", b"a", b"c"], [b"PING"], [b"\n"] * 10, LARGE]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100, 10_000])
def test_the_same_commands_come_out_however_the_bytes_are_cut(size: int) -> None:
    found: list[Command] = []
    data = b""
    for at in range(0, len(SENT), size):
        data += SENT[at : at + size]
        while taken := next_command(data, 0):
            command, times, end = taken
            data = data[end:]
            found += [command] * times if command else []
    assert found == WANTED
    assert not data


def test_a_row_is_the_same_incr_again_and_again() -> None:
    data = INCR * 130 + INCR.replace(b"photos", b"videos")
    size = len(INCR)
    assert next_command(data, 0) == ([b"INCR", b"photos"], 128, 128 * size)
    assert next_command(data, 128 * size) == ([b"INCR", b"photos"], 2, 130 * size)
    assert next_command(data, 130 * size) == ([b"INCR", b"videos"], 1, 131 * size)
    assert next_command(data, 131 * size) is None


def test_a_read_is_only_a_row_if_it_has_nothing_else() -> None:
    assert only_row(INCR * 3) == ("photos", 3)
    assert only_row(INCR + b"PING\r\n") is only_row(INCR[:-1]) is only_row(b"PING\r\n") is None
