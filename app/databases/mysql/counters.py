"""Reads the counters of a database: which tables are sequences, where they stand, and when they were made.

TRUNCATE changes nothing that an ordinary account may read. So the birth of a table is the second of its creation and a
word that the ticket server keeps in its notes. The word holds only while the table has a row with the stub of raises.
A table without that row gets another word, and then the row, with the id 0, which does not move the counter.
"""

from collections import Counter as Tally
from collections.abc import Sequence

from app.databases.mysql.draws import RAISE_STUB
from app.databases.mysql.login import Line, literal, quoted
from app.databases.record import new_word
from app.databases.session import LARGEST_ID, Counter
from app.errors import DatabaseError, SequenceError, SequenceUnusable

_AT_ONCE = 100
_NO_WORD = "none"
"""In the birth of a table without a word that was not asked for by name. It is never part of a tenure."""
BITS_53 = "53 bits"
"""The comment of the column `id` of a sequence that ends at 2**53 - 1."""
_TABLES = f"""
SELECT TABLE_NAME, UNIX_TIMESTAMP(CREATE_TIME), TABLE_TYPE <> 'VIEW' AND number IS NOT NULL AND stub IS NOT NULL, CASE
    WHEN TABLE_TYPE = 'VIEW' THEN 'it is a view'
    WHEN number IS NULL OR stub IS NULL THEN 'its table lacks the column id or stub'
    WHEN TABLE_TYPE <> 'BASE TABLE'
        THEN CONCAT('its table is ', LOWER(TABLE_TYPE), ', so each ticket would leave a row')
    WHEN number NOT REGEXP '^(BIG)?INT([(][0-9]+[)])?( UNSIGNED)?( ZEROFILL)? AUTO_INCREMENT' THEN CONCAT(
        'its column id is not AUTO_INCREMENT of INT or BIGINT but ', number, ': make it BIGINT UNSIGNED NOT NULL')
    WHEN leads IS NOT TRUE THEN 'its column id leads no key, so each stub has a counter of its own: ADD KEY id (id)'
    WHEN stub NOT REGEXP '^(VAR)?(CHAR|BINARY)[(][1-9][0-9]*[)]' OR stub LIKE '% GENERATED%'
        THEN CONCAT('its column stub is ', stub, ': make it CHAR(1) NOT NULL')
    WHEN alone IS NOT TRUE
        THEN 'its column stub has no unique key of its own, so each ticket would leave a row: ADD UNIQUE KEY (stub)'
    WHEN required IS NOT NULL THEN CONCAT('its column ', required, ' has no default')
END, CASE
    WHEN ENGINE <> 'InnoDB' THEN CONCAT(
        'its table is on ', ENGINE, ', where a crash loses tickets: ALTER TABLE ', TABLE_NAME, ' ENGINE=InnoDB')
    WHEN first IS NOT TRUE THEN CONCAT(
        'its primary key is not stub, so draws of several servers deadlock, and an open snapshot slows them down: ',
        'ALTER TABLE ', TABLE_NAME, ' DROP PRIMARY KEY, ADD PRIMARY KEY (stub), ADD KEY id (id)')
END, CASE
    WHEN number LIKE 'INT%' THEN IF(number LIKE '%UNSIGNED%', 4294967295, 2147483647)
    WHEN comment = '{BITS_53}' THEN 9007199254740991
    ELSE IF(number LIKE '%UNSIGNED%', 9223372036854775807, 9223372036854775806)
END
FROM information_schema.TABLES LEFT JOIN (
    SELECT TABLE_NAME, MAX(IF(COLUMN_NAME = 'id', UPPER(CONCAT_WS(' ', COLUMN_TYPE, EXTRA)), NULL)) AS number,
        MAX(IF(COLUMN_NAME = 'id', COLUMN_COMMENT, NULL)) AS comment,
        MAX(IF(COLUMN_NAME = 'stub', UPPER(TRIM(CONCAT(COLUMN_TYPE, ' ', EXTRA))), NULL)) AS stub,
        GROUP_CONCAT(IF(COLUMN_NAME NOT IN ('id', 'stub') AND IS_NULLABLE = 'NO' AND COLUMN_DEFAULT IS NULL
            AND EXTRA NOT LIKE '% GENERATED%', COLUMN_NAME, NULL)) AS required
    FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND LOWER(TABLE_NAME) CHOSEN GROUP BY TABLE_NAME
) AS of_columns USING (TABLE_NAME) LEFT JOIN (
    SELECT TABLE_NAME, MAX(names LIKE 'id,%') AS leads, MAX(NOT NON_UNIQUE AND names = 'stub,') AS alone,
        MAX(INDEX_NAME = 'PRIMARY' AND names = 'stub,') AS first
    FROM (
        SELECT TABLE_NAME, INDEX_NAME, NON_UNIQUE, GROUP_CONCAT(
            COALESCE(LOWER(COLUMN_NAME), '()'), ',' ORDER BY SEQ_IN_INDEX SEPARATOR '') AS names
        FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() AND LOWER(TABLE_NAME) CHOSEN
        GROUP BY TABLE_NAME, INDEX_NAME, NON_UNIQUE
    ) AS of_key GROUP BY TABLE_NAME
) AS of_keys USING (TABLE_NAME)
WHERE TABLE_SCHEMA = DATABASE() AND LOWER(TABLE_NAME) CHOSEN AND TABLE_NAME REGEXP '^[A-Za-z][A-Za-z0-9_]*$'
"""  # noqa: S608
"""What reads the tables whose names are chosen: name, second in which it was made, whether it has the columns of a
sequence, why it is none, what should be repaired, and the largest id that it can give. MySQL gives the largest id of a
column again and again. A signed BIGINT ends before that id, and for the others see `draws._COLUMN_ENDS`."""


async def read_counters(
    line: Line, names: Sequence[str] | None, *, has_notes: bool = True
) -> dict[str, Counter | DatabaseError]:
    """See Session.sequences. has_notes: whether the ticket server has made its notes there.

    The words are read first: where another server gives a table a word meanwhile, `_give_word` finds that out.
    """
    found: dict[str, Counter | DatabaseError] = {}
    words: dict[str, str] = {}
    chosen = "IS NOT NULL" if names is None else f"IN ({literal('', *names)})"
    if has_notes:
        notes = f"SELECT name, text FROM _ticket_notes WHERE book = 'births' AND name {chosen}"  # noqa: S608
        words = dict((await line.step(notes)).rows)
    listed = (await line.step(_TABLES.replace("CHOSEN", chosen))).rows
    times = Tally(name.lower() for name, *_ in listed)
    usable = {}
    for name, created, is_like_one, fault, *rest in listed:
        why = fault
        if times[name.lower()] > 1:
            why = f"other tables' names differ from {name} by case alone: rename them, or drop them"
        if why is None:
            usable[name] = (created, *rest)
        elif names is not None or is_like_one:
            found[name.lower()] = SequenceUnusable(why)
    for name, standing in (await standings_of(line, list(usable))).items():
        key, (created, warning, ceiling) = name.lower(), usable[name]
        if isinstance(standing, SequenceError):
            found[key] = standing
            continue
        position, is_raised = standing
        word: str | SequenceError = words.get(key, "")
        if not (is_raised and word):
            word = _NO_WORD if names is None else await _give_word(line, name, words.get(key, ""))
        bits = next(bits for bits in (32, 53, 64) if ceiling < 1 << bits)
        warnings = () if warning is None else (warning,)
        counter = Counter(name, bits, ceiling, min(position, ceiling), f"{created}.{word}", warnings)
        found[key] = word if isinstance(word, SequenceError) else counter
    return found


async def standings_of(line: Line, tables: Sequence[str]) -> dict[str, tuple[int, bool] | SequenceError]:
    """Return the positions of these tables, and whether each has the row of raises, by their names as they were made.

    The largest ids are read first. The other way round, a draw in between would lie above the position, and MySQL tells
    a counter that is one too low until a statement has opened the table.
    """
    found: dict[str, tuple[int, bool] | SequenceError] = {}
    for start in range(0, len(tables), _AT_ONCE):
        part = tables[start : start + _AT_ONCE]
        largest = (
            f"SELECT {literal(name)}, COALESCE(MAX(id), 0), "  # noqa: S608
            f"EXISTS (SELECT 1 FROM {quoted(name)} WHERE stub = '{RAISE_STUB}') FROM {quoted(name)}"
            for name in part
        )
        counters = (
            "SELECT TABLE_NAME, COALESCE(AUTO_INCREMENT, 1) FROM information_schema.TABLES "  # noqa: S608
            f"WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN ({literal(*part)})"
        )
        (outcome,) = await line.run_each([[" UNION ALL ".join(largest), counters]])
        if isinstance(outcome, SequenceError):
            for name in part:
                found |= {name: outcome} if len(part) == 1 else await standings_of(line, [name])
            continue
        rows, live = outcome
        following: dict[str, int] = dict(live.rows)
        for name, row, is_raised in rows.rows:
            if name in following:  # else an operator has dropped the table in between
                found[name] = min(max(int(row), int(following[name]) - 1), LARGEST_ID), bool(is_raised)
    return found


async def _give_word(line: Line, table: str, old: str) -> str | SequenceError:
    """Give a table another word, and its row, unless another server has done so since `old` was read.

    The row depends on the word: a server that stood still must not put the row back into a table that was emptied
    meanwhile. Returns the word that the table has.
    """
    word, row = literal(new_word()), f"book = 'births' AND name = {literal(table.lower())}"
    packet = [
        "BEGIN",
        f"INSERT INTO _ticket_notes (book, name, text) VALUES ('births', {literal(table.lower())}, {word}) "  # noqa: S608
        f"ON DUPLICATE KEY UPDATE text = IF(text = {literal(old)}, VALUES(text), text)",
        f"REPLACE INTO {quoted(table)} (id, stub) SELECT 0, '{RAISE_STUB}' FROM _ticket_notes "  # noqa: S608
        f"WHERE {row} AND text = {word}",
        f"SELECT text FROM _ticket_notes WHERE {row}",  # noqa: S608
        "COMMIT",
    ]
    outcome, _ = await line.run_each([packet, ["ROLLBACK"]])
    return outcome if isinstance(outcome, SequenceError) else str(outcome[3].rows[0][0])
