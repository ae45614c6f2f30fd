"""The tables that are sequences: what they are, where they stand, and how they are drawn from.

A draw is a REPLACE of up to eight rows, whose ids lie further apart where more ids than rows are wanted. All ids from
the first row's to the last row's belong to the draw, because both are on disk, and so is the counter behind them.

TRUNCATE changes nothing that an ordinary account may read. So the birth of a table is the second of its creation and a
word that the ticket server keeps in its notes. The word holds only while the table has a row with the stub of raises.
A table without that row gets another word, and then the row, with the id 0, which does not move the counter.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from app import errors
from app.databases.mysql.login import Line, Result, literal, quoted
from app.databases.record import new_word
from app.databases.session import EMPTIED, ENDS, LARGEST_ID, Counter, Drawn, Residue, Want

_RAISES = "!"
"""The stub of raises, which no draw uses."""
_STUBS = "abcdefgh"
"""All statements name their stubs in this order: two that name them in different orders deadlock."""
_VALUES = [",".join(f"('{stub}')" for stub in _STUBS[:rows]) for rows in range(len(_STUBS) + 1)]
_NEAR = 8
"""A draw of several ids looks where the counter stands if fewer than this many draws like it are left."""
_COLUMN_ENDS = ((1 << 31) - 1, (1 << 32) - 1)
"""The largest ids of the columns INT and INT UNSIGNED. MySQL gives them again and again, without an error, so that no
server can know whether another one has had the id. On MySQL they are never issued: a draw from above them shows whether
the column ends there."""
_AT_ONCE = 100
"""How many tables' largest ids one statement reads."""
BITS_53 = "53 bits"
"""The comment of the column `id` of a sequence that ends at 2**53 - 1."""
_TABLES = f"""
SELECT TABLE_NAME, UNIX_TIMESTAMP(CREATE_TIME), TABLE_TYPE <> 'VIEW' AND number IS NOT NULL AND stub IS NOT NULL, CASE
    WHEN COUNT(*) OVER (PARTITION BY LOWER(TABLE_NAME)) > 1
        THEN CONCAT('other tables'' names differ from ', TABLE_NAME, ' by case alone: rename them, or drop them')
    WHEN TABLE_TYPE <> 'BASE TABLE' THEN CONCAT('it is no plain table but ', LOWER(TABLE_TYPE))
    WHEN number IS NULL OR stub IS NULL THEN 'its table lacks the column id or stub'
    WHEN number NOT REGEXP '^(BIG)?INT([(][0-9]+[)])?( UNSIGNED)?( ZEROFILL)? AUTO_INCREMENT' THEN CONCAT(
        'its column id is not AUTO_INCREMENT of INT or BIGINT but ', number, ': make it BIGINT UNSIGNED NOT NULL')
    WHEN leads IS NOT TRUE THEN 'its column id leads no key, so each stub has a counter of its own: ADD KEY id (id)'
    WHEN stub NOT REGEXP '^(VAR)?(CHAR|BINARY)[(][1-9][0-9]*[)]' OR stub LIKE '% GENERATED%'
        THEN CONCAT('its column stub is ', stub, ': make it CHAR(1) NOT NULL')
    WHEN alone IS NOT TRUE
        THEN 'its column stub has no unique key of its own, so each ticket would leave a row: ADD UNIQUE KEY (stub)'
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
        MAX(IF(COLUMN_NAME = 'stub', UPPER(TRIM(CONCAT(COLUMN_TYPE, ' ', EXTRA))), NULL)) AS stub
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
"""Reads of each chosen table its name, the second in which it was made, whether it has the columns of a sequence, why
it is none, what an operator should repair, and the largest id that it can give. MySQL gives the largest id of a column
again and again. A signed BIGINT ends before that id, and for the others see `_COLUMN_ENDS`."""


class Standing(NamedTuple):
    """Where a table stands. is_raised: whether it has the row of raises, which a table that was emptied lacks."""

    position: int
    is_raised: bool


async def read_counters(line: Line, names: Sequence[str] | None) -> dict[str, Counter | errors.DatabaseError]:
    """See Session.sequences. A database that no ticket server has used has no notes.

    The words are read first: where another server gives a table a word meanwhile, `_give_words` finds that out. A table
    without a word gets one if it is asked for by name.
    """
    chosen = "IS NOT NULL" if names is None else f"IN ({literal('', *names)})"
    notes = f"SELECT name, text FROM _ticket_notes WHERE book = 'births' AND name {chosen}"  # noqa: S608
    (outcome,) = await line.run_each([[notes]])
    if isinstance(outcome, errors.SequenceError) and names is not None:
        raise errors.DatabaseFailed("has lost the ticket server's own tables") from outcome
    words: dict[str, str] = {} if isinstance(outcome, errors.SequenceError) else dict(outcome[0].rows)
    found: dict[str, Counter | errors.DatabaseError] = {}
    usable = {}
    for name, created, is_like_one, fault, *rest in (await line.step(_TABLES.replace("CHOSEN", chosen))).rows:
        if fault is None:
            usable[name] = created, *rest
        elif names is not None or is_like_one:
            found[name.lower()] = errors.SequenceUnusable(fault)
    standings = await standings_of(line, list(usable))
    found |= {name.lower(): each for name, each in standings.items() if isinstance(each, errors.SequenceError)}
    there = {name: each for name, each in standings.items() if isinstance(each, Standing)}
    lacking = [name for name, standing in there.items() if not (standing.is_raised and words.get(name.lower()))]
    given: dict[str, str | errors.SequenceError] = dict.fromkeys(lacking, "none")  # never part of a tenure
    if names is not None and lacking:
        given = await _give_words(line, lacking, words)
    for name, standing in there.items():
        key, (created, warning, ceiling) = name.lower(), usable[name]
        word = given.get(name) or words[key]
        bits, position = next(bits for bits in ENDS if ceiling <= ENDS[bits]), min(standing.position, ceiling)
        warnings = () if warning is None else (warning,)
        counter = Counter(name, bits, ceiling, position, f"{created}.{word}", warnings)
        found[key] = word if isinstance(word, errors.SequenceError) else counter
    return found


async def standings_of(line: Line, tables: Sequence[str]) -> dict[str, Standing | errors.SequenceError]:
    """Return where these tables stand, by their names as they were made.

    The largest ids are read first. The other way round, a draw in between would lie above the position, and MySQL tells
    a counter that is one too low until a statement has opened the table.
    """
    found: dict[str, Standing | errors.SequenceError] = {}
    largest = [
        f"SELECT {literal(name)}, COALESCE(MAX(id), 0), "  # noqa: S608
        f"EXISTS (SELECT 1 FROM {quoted(name)} WHERE stub = '{_RAISES}') FROM {quoted(name)}"
        for name in tables
    ]
    starts = range(0, len(tables), _AT_ONCE)
    outcomes = await line.run_each([[" UNION ALL ".join(largest[start : start + _AT_ONCE])] for start in starts])
    following = await line.step(
        "SELECT TABLE_NAME, COALESCE(AUTO_INCREMENT, 1) FROM information_schema.TABLES "  # noqa: S608
        f"WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN ({literal('', *tables)})"
    )
    live: dict[str, int] = dict(following.rows)
    for start, outcome in zip(starts, outcomes, strict=True):
        part = tables[start : start + _AT_ONCE]
        if isinstance(outcome, errors.SequenceError):
            for name in part:
                found |= {name: outcome} if len(part) == 1 else await standings_of(line, [name])
            continue
        for name, row, is_raised in outcome[0].rows:
            if name in live:  # else an operator has dropped the table in between
                found[name] = Standing(min(max(int(row), int(live[name]) - 1), LARGEST_ID), bool(is_raised))
    return found


async def _give_words(
    line: Line, tables: Sequence[str], words: Mapping[str, str]
) -> dict[str, str | errors.SequenceError]:
    """Give tables other words, and their rows, unless another server has done so since the words were read.

    The row depends on the word: a server that stood still must not put the row back into a table that was emptied
    meanwhile. words: those that were read, by names in lower case. Returns the words that the tables have.
    """
    groups = []
    for table in sorted(tables):  # all servers take their locks in this order
        key = table.lower()
        word, row = literal(new_word()), f"book = 'births' AND name = {literal(key)}"
        groups.append([
            f"INSERT INTO _ticket_notes (book, name, text) VALUES ('births', {literal(key)}, {word}) "  # noqa: S608
            f"ON DUPLICATE KEY UPDATE text = IF(text = {literal(words.get(key, ''))}, VALUES(text), text)",
            f"REPLACE INTO {quoted(table)} (id, stub) SELECT 0, '{_RAISES}' FROM _ticket_notes "  # noqa: S608
            f"WHERE {row} AND text = {word}",
            f"SELECT text FROM _ticket_notes WHERE {row} FOR UPDATE",  # noqa: S608  # as it is, not as the commit began
        ])  # fmt: skip
    outcomes = zip(sorted(tables), await line.commit_each(groups), strict=True)
    return {
        name: each if isinstance(each, errors.SequenceError) else str(each[2].rows[0][0]) for name, each in outcomes
    }


def raising(line: Line, table: str, above: int, *, birth: str = "", again: bool = False) -> str:
    """Return the statement that moves a counter above a number; a lower number is harmless.

    Without the strict mode, a number that the column cannot hold becomes the largest one, which exhausts the sequence.

    The statement finds no row, and does nothing, in a table that was emptied since a ticket server has read it. birth:
    only where the counter still has it. again: only where the table has the row of an earlier raise: a table that was
    emptied gets the row with the id 0 with its next word.
    """
    name, which = quoted(table), f"stub = '{_RAISES}'{' AND id > 0' if again else ''}"
    if birth:
        of_birth = f"name = {literal(table.lower())} AND text = {literal(birth.partition('.')[2])}"
        which += f" AND EXISTS (SELECT 1 FROM _ticket_notes WHERE book = 'births' AND {of_birth})"  # noqa: S608
    source = f"INTO {name} (id, stub) SELECT GREATEST(id, {above}), stub FROM {name} WHERE {which} FOR UPDATE"  # noqa: S608
    return line.with_settings("REPLACE", source, sql_mode="'NO_AUTO_VALUE_ON_ZERO'")


class Draw:
    """One want, and how it is drawn.

    rows: of the statement. wide: the distance of two rows' ids. further: how far the last row's id lies above the first
    one's. known: where the counter should stand. has_to_look: whether the ids might pass the end: the draw would fail,
    and use up what was left.
    """

    def __init__(self, line: Line, want: Want, residue: Residue) -> None:
        self.want = want
        self.rows = min(want.count, len(_STUBS))
        self.wide = residue.increment * (1 if self.rows == want.count else -(-(want.count - 1) // (self.rows - 1)))
        self.further = self.wide * (self.rows - 1)
        self.known = max(want.last, want.above)
        self.has_to_look = self.rows > 1 and (not want.last or want.ceiling - self.known < _NEAR * self.further)
        self._residue = residue
        self._offset = residue.offset
        self._line = line

    def statements(self) -> list[str]:
        """Return what is sent; the last statement draws, and one before it raises the counter.

        There is none if the ids would pass the ceiling.
        """
        want, (offset, increment) = self.want, self._residue
        first = self.known + 1 + (offset - self.known - 1) % increment
        # The counter stands one distance behind the last row, and MySQL moves it to the end if it is as near to that.
        if want.above >= want.ceiling or (self.rows > 1 and first + self.further + 2 * self.wide > want.ceiling):
            return []
        draw = f"INTO {quoted(want.sequence)} (stub) VALUES {_VALUES[self.rows]}"
        if self.wide == increment:
            draw = f"REPLACE {draw}"
        else:
            assert self.wide <= 65_535, "more than `most_ids`: the servers clip a larger increment without an error"
            self._offset = first % self.wide or self.wide
            steps = {"auto_increment_increment": self.wide, "auto_increment_offset": self._offset}
            draw = self._line.with_settings("REPLACE", draw, **steps)
        # the first draw of a caller needs the raise, since the draw alone does not show that a table was emptied
        if want.above <= (want.last if want.drawn else 0) and (want.drawn or not want.birth):
            return [draw]
        above = max(want.above, want.last)
        return [raising(self._line, want.sequence, above, birth=want.birth, again=want.drawn), draw]

    def result(self, results: Sequence[Result]) -> Drawn | errors.SequenceError | Want:
        """Return the ids, from the results of the statements; or what to draw instead where an id may end its column.

        Raises DatabaseFailed where none was drawn, and DatabaseRefused where the first id is of another residue.
        """
        if not results:
            return errors.SequenceExhausted()
        want, increment, (*raises, draw) = self.want, self._residue.increment, results
        # A raise of an emptied table finds no row, and a draw makes each of its rows, and replaces none.
        if not all(each.affected for each in raises) or (want.drawn and draw.affected == self.rows):
            return errors.SequenceMissing(EMPTIED)
        first = draw.insert_id
        if not first:
            raise errors.DatabaseFailed(f"drew nothing from {want.sequence}, and reported no error")
        fit = (want.ceiling - first) // increment + 1
        if fit < want.count or first == want.above:
            return errors.SequenceExhausted()
        if (first - self._offset) % self.wide:
            raise errors.DatabaseRefused(
                f"gave the id {first} of {want.sequence}, which is not {self._offset} in steps of {self.wide}: a "
                "trigger changes ids, or something between changes statements or shares sessions"
            )
        if (end := first + self.further) in _COLUMN_ENDS and not self._line.mariadb:
            return want._replace(above=end, drawn=False)
        return Drawn(first, min(fit, self.further // increment + 1))
