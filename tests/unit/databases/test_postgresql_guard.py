"""The guard passes on every byte of a PostgreSQL server, in pieces of any size, until there are too many."""

import asyncio

import pytest

from app.databases.line import SMALL_ANSWER
from app.databases.postgresql.guard import Guard

NOTICE = b"N\0\0\0\x05\0"
SASL = b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0"
MD5 = b"R\0\0\0\x0c\0\0\0\x05salt"
CLEAR = b"R\0\0\0\x08\0\0\0\x03"
DONE = b"R\0\0\0\x08\0\0\0\0"
LATER = b"Z\0\0\0\x05I" + CLEAR
"""After the login, bytes that look like a request for the password are a part of an answer."""


class Driver(asyncio.Protocol):
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.heard = b""
        self.transport: object = None

    def connection_made(self, transport: object) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard += data


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


def guard_of(*, takes_clear_text: bool = False) -> tuple[Guard, Driver, Transport]:
    driver, transport = Driver(), Transport()
    guard = Guard(driver, takes_clear_text=takes_clear_text)
    guard.connection_made(transport)
    assert driver.transport is transport
    return guard, driver, transport


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 9, 1000])
@pytest.mark.parametrize("asks", [SASL, MD5, NOTICE])
def test_a_login_is_passed_on_in_whatever_pieces_it_comes(size: int, asks: bytes) -> None:
    guard, driver, transport = guard_of()
    whole = NOTICE + asks + DONE + LATER
    for begin in range(0, len(whole), size):
        guard.data_received(whole[begin : begin + size])
    assert driver.heard == whole
    assert (guard.refused, transport.aborted) == (False, False)


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_a_server_that_wants_the_password_in_clear_text_is_cut_off(size: int) -> None:
    guard, driver, transport = guard_of()
    whole = NOTICE + CLEAR
    for begin in range(0, len(whole), size):
        guard.data_received(whole[begin : begin + size])
    assert driver.heard == NOTICE
    assert (guard.refused, transport.aborted) == (True, True)


def test_one_that_was_verified_may_have_it() -> None:
    guard, driver, transport = guard_of(takes_clear_text=True)
    guard.data_received(CLEAR + DONE + LATER)
    assert driver.heard == CLEAR + DONE + LATER
    assert (guard.refused, transport.aborted) == (False, False)


def test_more_than_was_asked_for_cuts_it_off_before_and_after_the_login() -> None:
    guard, driver, transport = guard_of()
    guard.data_received(bytes(SMALL_ANSWER + 1))
    assert transport.aborted
    guard, driver, transport = guard_of()
    guard.data_received(DONE)
    ten = b"C" + (9).to_bytes(4) + bytes(5)
    guard.left = 10
    guard.data_received(ten)
    assert not transport.aborted
    guard.data_received(b"x")
    assert transport.aborted
    assert driver.heard == DONE + ten


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
@pytest.mark.parametrize("length", [-(2**31), -1, 0, 3])
def test_a_message_of_an_impossible_length_cuts_it_off_before_the_driver_sees_it(length: int, size: int) -> None:
    """The driver would loop for ever."""
    guard, driver, transport = guard_of()
    guard.data_received(DONE)
    begin = NOTICE + b"C" + (6).to_bytes(4) + b"ab"
    whole = begin + b"C" + length.to_bytes(4, signed=True) + b"SET\0"
    for at in range(0, len(whole), size):
        if not transport.aborted:
            guard.data_received(whole[at : at + size])
    assert transport.aborted
    assert len(driver.heard) < len(DONE + begin) + 5


@pytest.mark.parametrize("size", [1, 2, 5, 6, 1000])
def test_messages_are_passed_on_in_whatever_pieces_they_come(size: int) -> None:
    guard, driver, transport = guard_of()
    guard.data_received(DONE)
    whole = (NOTICE + b"Z" + (4).to_bytes(4) + b"D" + (300).to_bytes(4) + bytes(296)) * 3
    for at in range(0, len(whole), size):
        guard.data_received(whole[at : at + size])
    assert driver.heard == DONE + whole
    assert not transport.aborted


@pytest.mark.parametrize("begin", [b"N\x7f\xff\xff\xff", b"HTTP/1.1 400"])
def test_a_message_that_never_ends_is_kept_up_to_the_bound(begin: bytes) -> None:
    guard, driver, transport = guard_of()
    guard.data_received(begin)
    while not transport.aborted:
        guard.data_received(bytes(65_536))
    assert driver.heard == b""
    assert guard.left < 0
