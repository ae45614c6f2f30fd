"""Which tables are sequences on MySQL and MariaDB, and their births."""

import asyncio

import pytest

from app.databases.mysql.tables import _give_words
from app.databases.session import Counter, Want
from app.errors import DatabaseFailed, DatabaseRefused, SequenceBusy, SequenceUnusable
from tests.engines.bench import BOTH, ODD, Bench, counter, line_of
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


async def test_a_table_whose_position_cannot_be_read_is_nobody_elses_affair(bench: Bench) -> None:
    session = await bench.open(ODD, seconds=1)
    for name in ("photos", "groups"):
        await session.make(name, 64, 0)
    assert bench.lock is not None
    with bench.lock("lock", "photos"):
        found = await session.sequences(["photos", "groups"])
    assert isinstance(found["photos"], SequenceBusy)
    assert isinstance(found["groups"], Counter)


async def test_the_birth_changes_with_each_truncate_at_once(bench: Bench) -> None:
    session, other = await bench.with_photos(), await bench.open(None)
    births: list[str] = []
    for _ in range(3):
        found = [await counter(asked) for asked in (session, other, session)]
        assert {each.position for each in found} == {0}
        births += {each.birth for each in found}
        await session.draw([Want("photos", 100)])
        bench.run("TRUNCATE TABLE photos")
        assert (await session.sequences(None))["photos"].birth.endswith("none")  # type: ignore[union-attr]
    assert len(births) == len(set(births)) == 3


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


@pytest.mark.parametrize("change", ["COMMENT = 'layout 2'", "ENGINE = MyISAM"])
async def test_own_tables_of_another_layout_or_engine_are_refused(bench: Bench, change: str) -> None:
    await bench.open(ODD)
    bench.run(f"ALTER TABLE _ticket_notes {change}")
    with pytest.raises(DatabaseRefused, match="_ticket_notes"):
        await bench.open(ODD)


@pytest.mark.parametrize("table", ["_kinds", "_definitions"])
async def test_kinds_of_releases_before_are_never_taken_for_plain_tickets(bench: Bench, table: str) -> None:
    bench.run(f"CREATE TABLE {table} (sequence VARCHAR(64), kind VARCHAR(32), decided INT NOT NULL DEFAULT 1)")
    await bench.open(ODD)
    bench.run(f"INSERT INTO {table} (sequence, kind) VALUES ('likes', 'instagram')")
    with pytest.raises(DatabaseRefused, match="make them again"):
        await bench.open(ODD)
