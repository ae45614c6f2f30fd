"""Commands out of bytes, however they are cut."""

import pytest

from app.redis.parser import Command, next_command, only_row

INCR = b"*2\r\n$4\r\nINCR\r\n$6\r\nphotos\r\n"
SENT = (
    *(INCR, b"\r\nPING a  c\r\n*0\r\n", b"*1\r\n$4\r\nPING\r\n", b"*10\r\n" + b"$1\r\n\n\r\n" * 10),
    *(b"*2\r\n$4\r\nECHO\r\n$4000\r\n%b\r\n" % (b"x" * 4_000), INCR * 130, INCR.replace(b"photos", b"videos")),
)
ONE = [b"INCR", b"photos"]
WANTED = [ONE, [b"PING", b"a", b"c"], [b"PING"], [b"\n"] * 10, [b"ECHO", b"x" * 4_000], *[ONE] * 130]
WANTED.append([b"INCR", b"videos"])


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100, 10_000])
def test_the_same_commands_come_out_however_the_bytes_are_cut(size: int) -> None:
    found, data, sent = list[Command](), b"", b"".join(SENT)
    for at in range(0, len(sent), size):
        data += sent[at : at + size]
        while taken := next_command(data, 0):
            command, times, end = taken
            data = data[end:]
            assert times <= 128
            found += [command] * times if command else []
    assert found == WANTED
    assert not data


def test_a_read_is_only_a_row_if_it_has_nothing_else() -> None:
    assert only_row(INCR * 3) == ("photos", 3)
    assert only_row(INCR + b"PING\r\n") is only_row(INCR[:-1]) is only_row(b"PING\r\n") is None
