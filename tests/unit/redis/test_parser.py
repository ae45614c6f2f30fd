"""Commands out of bytes, however they are cut."""

import pytest

from app.redis.parser import LARGEST_OF_STRANGERS, Command, Incoming, ProtocolError

INCR = b"*2\r\n$4\r\nINCR\r\n$6\r\nphotos\r\n"
LARGE = [b"ECHO", b"x" * 5_000]
SENT = (
    INCR
    + b"\r\nPING 'a b' c\r\n*0\r\n"
    + b"*1\r\n$4\r\nPING\r\n"
    + b"*10\r\n"
    + b"$1\r\n\n\r\n" * 10
    + b"*2\r\n$4\r\nECHO\r\n$5000\r\n%b\r\n" % LARGE[1]
)
WANTED = [[b"INCR", b"photos"], [b"PING", b"a b", b"c"], [b"PING"], [b"\n"] * 10, LARGE]


def taken(incoming: Incoming) -> list[Command]:
    found: list[Command] = []
    while True:
        if row := incoming.row():
            found += [[b"INCR", row[0]]] * row[1]
        elif (command := incoming.take()) is not None:
            found += [command] if command else []
        else:
            return found


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100, 10_000])
def test_the_same_commands_come_out_however_the_bytes_are_cut(size: int) -> None:
    incoming = Incoming()
    found: list[Command] = []
    for at in range(0, len(SENT), size):
        incoming.add(SENT[at : at + size])
        found += taken(incoming)
    assert found == WANTED
    assert not incoming.is_partial


def test_a_row_is_the_same_incr_again_and_again() -> None:
    incoming = Incoming()
    incoming.add(INCR * 130 + INCR.replace(b"photos", b"videos"))
    rows = [incoming.row() for _ in range(4)]
    assert rows == [(b"photos", 128), (b"photos", 2), (b"videos", 1), None]


def test_a_row_whose_length_is_wrong_is_none() -> None:
    incoming = Incoming()
    incoming.add(INCR.replace(b"$6", b"$5"))
    assert incoming.row() is None
    with pytest.raises(ProtocolError):
        incoming.take()


@pytest.mark.parametrize(
    "data", [b"*513\r\n", b"*1\r\n$16385\r\n", b"*2\r\n$16000\r\n%b\r\n$999\r\n" % (b"x" * 16_000)]
)
def test_a_command_has_a_largest_size(data: bytes) -> None:
    incoming = Incoming()
    incoming.add(data)
    with pytest.raises(ProtocolError, match=r"invalid (multi)?bulk length"):
        taken(incoming)


def test_a_stranger_may_send_less_than_a_client_with_a_token() -> None:
    incoming = Incoming()
    incoming.largest = LARGEST_OF_STRANGERS
    incoming.add(b"*1\r\n$4097\r\n")
    with pytest.raises(ProtocolError):
        taken(incoming)
