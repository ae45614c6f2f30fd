"""How ids and times are written. What reads raises InvalidRequest with the reason, which does not repeat the id."""

import re
from datetime import UTC, datetime, timedelta

from app.common.errors import InvalidRequest

LATEST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999, since 1970: RFC 3339 writes years in four digits."""

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""The 32 letters that a ULID is written in."""

_DECIMAL = re.compile(r"[1-9][0-9]{0,19}", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_1970 = datetime(1970, 1, 1, tzinfo=UTC)
_VALUES = {letter: value for value, letter in enumerate(CROCKFORD)}


def time_text(ms: int) -> str:
    """The time in RFC 3339, in UTC, with three digits after the second; InvalidRequest where it has no such form."""
    if not 0 <= ms <= LATEST_MS:
        raise InvalidRequest("the id's time is later than the year 9999, so it is none that was ever the present")
    return (_1970 + timedelta(milliseconds=ms)).strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z"


def decimal(id_text: str, kind: str, largest: int) -> int:
    """An id that is a number, in digits without a sign, a space or a leading zero."""
    if _DECIMAL.fullmatch(id_text) and (number := int(id_text)) <= largest:
        return number
    raise InvalidRequest(f"an id of kind {kind} is a whole number from 1 to {largest}, in digits without leading zeros")


def hexadecimal(id_text: str, kind: str, digits: int) -> int:
    """An id that is so many hexadecimal digits, in either case."""
    if re.fullmatch(f"[0-9a-fA-F]{{{digits}}}", id_text):
        return int(id_text, 16)
    raise InvalidRequest(f"an id of kind {kind} is {digits} hexadecimal digits")


def uuid_number(id_text: str, kind: str, version: int) -> int:
    """A UUID of this version and of RFC 9562's variant, in the usual form, in either case."""
    if not _UUID.fullmatch(id_text):
        raise InvalidRequest(f"an id of kind {kind} is a UUID: 8, 4, 4, 4 and 12 hexadecimal digits with - between them")
    number = int(id_text.replace("-", ""), 16)
    if (number >> 62) & 0b11 != 0b10:
        raise InvalidRequest("this UUID is not of RFC 9562's variant: the 17th digit has to be 8, 9, a or b")
    if (found := (number >> 76) & 0xF) != version:
        raise InvalidRequest(f"this UUID is of version {found}; kind {kind} makes version {version}")
    return number


def uuid_text(number: int) -> str:
    """The canonical form of a UUID, in lower case."""
    digits = f"{number:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def ulid_number(id_text: str) -> int:
    """A ULID, in either case. The letters that Crockford's alphabet leaves out (I, L, O, U) are none of it."""
    upper = id_text.upper()
    if not id_text.isascii() or len(id_text) != 26 or not set(upper) <= _VALUES.keys():
        raise InvalidRequest("an id of kind ulid is 26 letters and digits, without I, L, O and U")
    number = 0
    for letter in upper:
        number = number << 5 | _VALUES[letter]
    if number >> 128:
        raise InvalidRequest("a ULID has 128 bits: the largest is 7ZZZZZZZZZZZZZZZZZZZZZZZZZ")
    return number


def ulid_text(number: int) -> str:
    """The canonical form of a ULID, in upper case."""
    return "".join([CROCKFORD[(number >> shift) & 31] for shift in range(125, -1, -5)])
