"""Settings of a server that lose tickets, or refuse what is sent; and how large that is."""

import pytest

from app.databases.mysql import sequence_sql
from app.databases.mysql.books import own_sql
from app.databases.mysql.books.marks import MARKS_PER_WRITE
from app.databases.mysql.draws.draws import DRAWS_PER_PACKET
from app.databases.mysql.line.bounds import LARGEST_STATEMENT
from app.databases.mysql.line.server_settings import flaws_of
from app.databases.protocol import LARGEST_INCREMENT

NAME = "s" * 64
TOKEN = "t" * 128
MOST = 2**63 - 1


@pytest.mark.parametrize(
    ("variables", "begins"),
    [
        ({}, []),
        ({"innodb_flush_method": "O_DIRECT", "innodb_doublewrite": "ON", "max_allowed_packet": "16777216"}, []),
        ({"innodb_flush_method": "fsync", "innodb_doublewrite": "DETECT_AND_RECOVER"}, []),
        ({"innodb_flush_method": "nosync"}, ["innodb_flush_method=nosync writes nothing"]),
        ({"innodb_flush_method": "littlesync"}, ["innodb_flush_method=littlesync skips"]),
        ({"innodb_doublewrite": "OFF"}, ["innodb_doublewrite=OFF: a page"]),
        ({"innodb_doublewrite": "DETECT_ONLY"}, ["innodb_doublewrite=DETECT_ONLY: a page that a power cut leaves"]),
        ({"max_allowed_packet": "1024"}, ["max_allowed_packet=1024 is too small"]),
    ],
)
def test_what_is_wrong_with_settings(variables: dict[str, str], begins: list[str]) -> None:
    found = flaws_of(variables)
    assert len(found) == len(begins)
    for flaw, begin in zip(found, begins, strict=True):
        assert flaw.wrong.startswith(begin)
        assert flaw.fix


def test_no_statement_is_larger_than_what_the_doctor_asks_for() -> None:
    mark = (NAME, LARGEST_INCREMENT, LARGEST_INCREMENT, MOST, MOST, TOKEN)
    keys = [mark[:3]] * MARKS_PER_WRITE
    reserve = own_sql.keep(own_sql.INNER_MARKS_TABLE, [mark] * MARKS_PER_WRITE, MOST)
    read_back = own_sql.read_back(own_sql.INNER_MARKS_TABLE, keys)
    supersede = own_sql.supersede(mark[:3], (TOKEN, MOST), (TOKEN, MOST), MOST, MOST)
    ring = (MOST, LARGEST_INCREMENT, MOST, "9" * 8000, LARGEST_INCREMENT, "x" * 16)
    bodies = [(LARGEST_INCREMENT, MOST, "f" * 64, "h" * 255, "l" * 64)] * 64
    uses = [(LARGEST_INCREMENT, "f" * 64, "h" * 255, "s" * 300)] * 65
    one_draw = f"{sequence_sql.advance(NAME, MOST)};{sequence_sql.draw(NAME, len(sequence_sql.STUBS))};"
    kind = (NAME, NAME, "k" * 32, "p" * 2000, 1, "f" * 64)
    sent = {
        "marks": f"{reserve}; {own_sql.RING_NUMBER}; {read_back}",
        "marks superseded": "; ".join(["BEGIN", *[supersede] * MARKS_PER_WRITE, "COMMIT", own_sql.RING_NUMBER]),
        "a ring": ";".join(own_sql.next_ring(ring, ring, "9" * 8000, bodies, ("a" * 64, uses, 3600.0))),
        "a kind": ";".join(own_sql.define(kind, kind)),
        "draws": one_draw * DRAWS_PER_PACKET,
        "positions": ";".join(sequence_sql.positions([NAME] * 50)),
        "tables": sequence_sql.tables([NAME] * 50),
        "moments": sequence_sql.moments([NAME] * 200),
        "a server": own_sql.announce("a" * 64, "r" * 64, ",".join(["k" * 32] * 60), 3600.0, 3600.0),
    }
    sizes = {what: len(statement.encode()) for what, statement in sent.items()}
    assert max(sizes.values()) < LARGEST_STATEMENT, sizes
    assert max(sizes, key=lambda what: sizes[what]) == "a ring", sizes
    assert sizes["a ring"] > LARGEST_STATEMENT / 4
