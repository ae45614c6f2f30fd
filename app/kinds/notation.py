"""How ids and times are written. Reading raises InvalidRequest with a reason that does not repeat the id."""

import re
from datetime import UTC, datetime, timedelta
from uuid import RFC_4122, UUID

from app.errors import InvalidRequest

LATEST_MS = 253_402_300_799_999  # the last millisecond of the year 9999: RFC 3339 writes years in four digits
CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # the 32 letters that a ULID is written in
_DECIMAL = re.compile(r"[1-9][0-9]{0,19}", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_1970 = datetime(1970, 1, 1, tzinfo=UTC)
_ULID = re.compile(f"[{CROCKFORD}]{{26}}", re.ASCII | re.IGNORECASE)
_READ = str.maketrans(CROCKFORD, "0123456789abcdefghijklmnopqrstuv")  # to the digits that `int` reads


def time_text(ms: int) -> str:
    """Return a time in RFC 3339, in UTC and in milliseconds."""
    if not 0 <= ms <= LATEST_MS:
        raise InvalidRequest("the id's time is after the year 9999")
    return (_1970 + timedelta(milliseconds=ms)).strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z"


def decimal(id_text: str, kind: str, largest: int) -> int:
    """Read an id that is a number: digits without a sign, a space or a leading zero."""
    if _DECIMAL.fullmatch(id_text) and (number := int(id_text)) <= largest:
        return number
    raise InvalidRequest(f"an id of kind {kind} is a whole number from 1 to {largest}, in digits without leading zeros")


def hexadecimal(id_text: str, kind: str, digits: int) -> int:
    """Read an id of this many hexadecimal digits, in either case."""
    if re.fullmatch(f"[0-9a-fA-F]{{{digits}}}", id_text):
        return int(id_text, 16)
    raise InvalidRequest(f"an id of kind {kind} is {digits} hexadecimal digits")


def uuid_of(id_text: str, kind: str, version: int) -> UUID:
    """Read a UUID of this version and of RFC 9562's variant, in the usual form, in either case."""
    if not _UUID.fullmatch(id_text):
        raise InvalidRequest(f"an id of kind {kind} is a UUID: 8, 4, 4, 4 and 12 hexadecimal digits, - between them")
    found = UUID(id_text)
    if found.variant != RFC_4122:
        raise InvalidRequest("this UUID is not of RFC 9562's variant: the 17th digit has to be 8, 9, a or b")
    if found.version != version:
        raise InvalidRequest(f"this UUID is of version {found.version}; kind {kind} makes version {version}")
    return found


def ulid_number(id_text: str) -> int:
    """Read a ULID, in either case. Crockford's alphabet leaves out I, L, O and U."""
    if not _ULID.fullmatch(id_text):
        raise InvalidRequest("an id of kind ulid is 26 letters and digits, without I, L, O and U")
    number = int(id_text.upper().translate(_READ), 32)
    if number >> 128:
        raise InvalidRequest("a ULID has 128 bits: the largest is 7ZZZZZZZZZZZZZZZZZZZZZZZZZ")
    return number


def ulid_text(number: int) -> str:
    """Return the canonical form of a ULID, in upper case."""
    return "".join([CROCKFORD[(number >> shift) & 31] for shift in range(125, -1, -5)])
