"""Which tables are sequences, and what is wrong with those that nearly are, from rows of information_schema."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from app.databases.mysql.login import Rows
from app.databases.session import LARGEST_ID

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
BITS_53 = "53 bits"
"""The comment of the column `id` of a sequence that ends at 2**53 - 1."""
COLUMN_ENDS = frozenset({(1 << 31) - 1, (1 << 32) - 1})
"""The largest ids of the columns INT and INT UNSIGNED. MySQL gives them again and again, without an error, so that no
server can know whether another one has had the id. On MySQL they are never issued."""


class Column(NamedTuple):
    """A column. kind: its type; full: with what belongs to it. required: whether a row has to give it a value."""

    name: str
    kind: str
    full: str
    extra: str
    comment: str
    length: int | None
    required: int


class Table(NamedTuple):
    """A table. columns: by their names in lower case. keys: whether each is unique, with its columns in lower case."""

    name: str
    kind: str
    columns: dict[str, Column]
    keys: dict[str, tuple[bool, tuple[str, ...]]]

    @property
    def is_like_one(self) -> bool:
        """Whether it has the columns of a sequence."""
        return self.kind != "VIEW" and self.columns.keys() >= {"id", "stub"}


def described(names: str) -> list[str]:
    """Return the questions for the columns and keys of these tables. names: literals, divided by commas."""
    where = f"WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN ({names})"
    return [
        "SELECT TABLE_NAME, COLUMN_NAME, UPPER(DATA_TYPE), UPPER(COLUMN_TYPE), UPPER(EXTRA), COLUMN_COMMENT, "  # noqa: S608
        "CHARACTER_MAXIMUM_LENGTH, IS_NULLABLE = 'NO' AND COLUMN_DEFAULT IS NULL AND EXTRA NOT LIKE '% GENERATED%' "
        f"FROM information_schema.COLUMNS {where}",
        "SELECT TABLE_NAME, INDEX_NAME, NON_UNIQUE, GROUP_CONCAT(LOWER(COLUMN_NAME) ORDER BY SEQ_IN_INDEX) "  # noqa: S608
        f"FROM information_schema.STATISTICS {where} GROUP BY TABLE_NAME, INDEX_NAME, NON_UNIQUE",
    ]


def tables_of(kinds: Mapping[str, str], columns: Rows, keys: Rows) -> list[Table]:
    """Return the tables, from the answers to `described`. kinds: TABLE_TYPE by name."""
    tables = {name: Table(name, kind, {}, {}) for name, kind in kinds.items()}
    for table, name, *rest in columns:
        tables[table].columns[name.lower()] = Column(name, *rest)
    for table, key, is_loose, names in keys:
        tables[table].keys[key] = (not is_loose, tuple((names or "").split(",")))
    return list(tables.values())


def faults(table: Table) -> Iterator[str]:
    """Return what is wrong with a table that looks like a sequence, or was asked for."""
    if not table.is_like_one:
        yield "it is a view" if table.kind == "VIEW" else "its table lacks the column id or stub"
        return
    if table.kind != "BASE TABLE":
        yield f"its table is {table.kind.lower()}, so each ticket would leave a row"
    number, stub = table.columns["id"], table.columns["stub"]
    if "AUTO_INCREMENT" not in number.extra:
        yield "its column id is not AUTO_INCREMENT"
    if number.kind not in ("INT", "BIGINT"):
        yield f"its column id is {number.kind}: make it INT UNSIGNED or BIGINT UNSIGNED"
    if "id" not in {columns[0] for _, columns in table.keys.values()}:
        yield "its column id leads no key, so each stub has a counter of its own: ADD KEY id (id)"
    if stub.kind not in ("CHAR", "VARCHAR", "BINARY", "VARBINARY") or not stub.length or " GENERATED" in stub.extra:
        yield f"its column stub is {stub.full} {stub.extra}".strip() + ": make it CHAR(1) NOT NULL"
    if (True, ("stub",)) not in table.keys.values():
        yield "its column stub has no unique key of its own, so each ticket would leave a row: ADD UNIQUE KEY (stub)"
    for name, column in table.columns.items():
        if column.required and name not in ("id", "stub"):
            yield f"its column {column.name} has no default"


def width(table: Table) -> tuple[int, int]:
    """Return the bits and the ceiling of a sequence.

    MySQL gives the largest id of a column again and again. A signed BIGINT ends before that id, and for the others see
    COLUMN_ENDS.
    """
    number = table.columns["id"]
    is_unsigned = "UNSIGNED" in number.full
    if number.kind == "INT":
        return 32, (1 << (32 if is_unsigned else 31)) - 1
    return (53, (1 << 53) - 1) if number.comment == BITS_53 else (64, LARGEST_ID if is_unsigned else LARGEST_ID - 1)


def warnings(table: Table, engine: str) -> tuple[str, ...]:
    """Return what should be repaired. engine: the table's storage engine."""
    if engine != "InnoDB":
        return (f"its table is on {engine}, where a crash loses tickets: ALTER TABLE {table.name} ENGINE=InnoDB",)
    if table.keys.get("PRIMARY") == (True, ("stub",)):
        return ()
    return (
        "its primary key is not stub, so draws of several servers deadlock, and an open snapshot slows them down: "
        f"ALTER TABLE {table.name} DROP PRIMARY KEY, ADD PRIMARY KEY (stub), ADD KEY id (id)",
    )
