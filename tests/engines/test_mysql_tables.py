"""What is particular to the tables of MySQL and MariaDB: which are sequences, their births, and the own tables."""

import asyncio

import pytest

from app.databases.mysql.login import Result
from app.databases.mysql.tables import _give_words
from app.databases.session import Book, Mark, Marked, Note, Want, Write
from app.errors import DatabaseFailed, SequenceUnusable
from tests.engines.bench import BOTH, ODD, Bench, counter, line_of, record
from tests.servers_processes import DEADLINE

pytestmark = BOTH

ID = "id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT"
STUB = "stub CHAR(1) NOT NULL DEFAULT ''"
NEARLY = {
    "no unique key": f"({ID}, {STUB}, KEY (id), KEY (stub))",
    "SMALLINT": f"(id SMALLINT UNSIGNED NOT NULL AUTO_INCREMENT, {STUB}, PRIMARY KEY (stub), KEY (id))",
    "enum('a')": f"({ID}, stub ENUM('a') NOT NULL, PRIMARY KEY (stub), KEY (id))",
    "GENERATED": f"({ID}, a INT, stub CHAR(1) AS ('a') STORED, UNIQUE KEY (stub), PRIMARY KEY (id))",
    "unique key of its own": f"({ID}, {STUB}, PRIMARY KEY (stub, id), KEY (id))",
    "leads no key": f"({ID}, {STUB}, PRIMARY KEY (stub), KEY (stub, id)) ENGINE=MyISAM",
    "not AUTO_INCREMENT": f"(id BIGINT UNSIGNED NOT NULL, {STUB}, PRIMARY KEY (stub), KEY (id))",
    "further column without": f"({ID}, {STUB}, Owner INT NOT NULL, PRIMARY KEY (stub), KEY (id))",
    "lacks the column": f"({ID}, note CHAR(1), PRIMARY KEY (id))",
}
SERVED = {
    "signed": (f"(id INT NOT NULL AUTO_INCREMENT, {STUB}, PRIMARY KEY (stub), KEY (id))", 32, (1 << 31) - 1),
    "upper": (f"(ID BIGINT NOT NULL AUTO_INCREMENT, {STUB.upper()}, UNIQUE (STUB), KEY (ID))", 64, (1 << 63) - 2),
    "more": (f"({ID}, stub VARCHAR(9) NOT NULL, at DATETIME, PRIMARY KEY (stub), KEY (id))", 64, (1 << 63) - 1),
    "small": (f"({ID} COMMENT '53 bits', {STUB}, PRIMARY KEY (stub), KEY (id, stub))", 53, (1 << 53) - 1),
}


async def test_what_is_wrong_with_a_table_that_is_nearly_a_sequence_is_said(bench: Bench) -> None:
    for number, columns in enumerate(NEARLY.values()):
        bench.run(f"CREATE TABLE Nearly{number} {columns}")
    session = await bench.open(ODD)
    names = [f"nearly{number}" for number in range(len(NEARLY))]
    found = await session.sequences(names)
    for words, name in zip(NEARLY, names, strict=True):
        assert isinstance(found[name], SequenceUnusable)
        assert words.lower() in str(found[name]).lower()
    assert set(await session.sequences(None)) == set(names[:-1])


async def test_a_table_that_can_be_drawn_from_is_served(bench: Bench) -> None:
    for name, (columns, _, _) in SERVED.items():
        bench.run(f"CREATE TABLE {name} {columns}")
    for name in ("_mine", "`of-two`"):
        bench.run(f"CREATE TABLE {name} ({ID}, {STUB}, PRIMARY KEY (stub), KEY (id))")
    bench.run("CREATE TABLE people (id INT PRIMARY KEY)")
    bench.run("CREATE VIEW seen AS SELECT id, stub FROM small")
    session = await bench.open(ODD)
    assert (await session.sequences(None)).keys() == SERVED.keys()
    await session.draw([Want(name, 20) for name in SERVED])
    for name, (_, bits, ceiling) in SERVED.items():
        found = await counter(session, name)
        assert (found.bits, found.ceiling) == (bits, ceiling)
        assert 39 <= found.position < 100
    assert isinstance((await session.sequences(["seen"]))["seen"], SequenceUnusable)
    assert await session.sequences(["of-two", "_mine", "{0}"]) == {}


async def test_a_server_that_stood_still_puts_no_row_back_into_an_emptied_table(bench: Bench) -> None:
    session = await bench.with_photos()
    birth = (await counter(session)).birth
    bench.run("TRUNCATE TABLE photos")
    assert await _give_words(line_of(session), ["photos"], {}) == {"photos": birth.partition(".")[2]}
    assert bench.run("SELECT * FROM photos") == []
    bench.run("DROP TABLE _ticket_notes")
    with pytest.raises(DatabaseFailed, match="lost"):
        await session.sequences(["photos"])


async def test_a_word_that_another_server_gives_meanwhile_is_found(bench: Bench) -> None:
    session, other = await bench.open(ODD), line_of(await bench.open(ODD))
    for name in ("a", "b"):
        bench.run(f"CREATE TABLE {name} ({ID}, {STUB}, PRIMARY KEY (stub), KEY (id))")
    await other.run(["BEGIN", "INSERT INTO _ticket_notes (book, name, text) VALUES ('births', 'b', 'theirs')"])
    reading = asyncio.create_task(session.sequences(["a", "b"]))
    waiting = "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'"
    async with asyncio.timeout(DEADLINE):
        while bench.run(waiting) != [(1,)]:  # noqa: ASYNC110
            await asyncio.sleep(0.2)  # the servers renew what they show once nobody has asked for 0.1 s
    await other.run(["COMMIT"])
    assert (await reading)["b"].birth.endswith(".theirs")  # type: ignore[union-attr]


async def test_a_mark_that_waited_too_long_for_a_lock_is_sent_again_as_a_whole(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, holder = await bench.open(None, 1), line_of(await bench.open(None, 20))
    line = line_of(session)
    await record(session, "1.word")
    await session.write([Write(Book.MARKS, name, None, Note(1, 1, "t")) for name in ("a", "b")], None)
    send, packets = line.run, list[list[str]]()

    async def watch(packet: list[str]) -> list[Result]:
        packets.append(packet)
        if len(packets) == 2:  # it was rolled back
            await holder.step("COMMIT")
        return await send(packet)

    monkeypatch.setattr(line, "run", watch)
    await holder.run(["BEGIN", "SELECT * FROM _ticket_notes WHERE book = 'marks' AND name = 'b' FOR UPDATE"])
    assert await session.mark([Mark(name, "t", 5, 5, True) for name in "ab"], "1.word") == [Marked.DONE] * 2
    assert len(packets) == 3


async def test_what_a_column_cannot_keep_exactly_is_not_written(bench: Bench) -> None:
    session = await bench.open(None)
    for name, note in (
        *((name, Note(1, 1, "t")) for name in ("a ", "", "n" * 81, "ä")),
        *(("a", Note(tenure=tenure)) for tenure in ("t" * 201, "ä")),
        *(("a", Note(text=text)) for text in ("x" * 4001, "\ud800")),
    ):
        with pytest.raises(DatabaseFailed, match=r"cannot keep|protocol"):
            await session.write([Write(Book.MARKS, name, None, note)], None)
    assert await session.page(Book.MARKS, "", 10) == []
