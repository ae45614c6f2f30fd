"""Two ticket databases, odd and even; or as many as are asked for, each with its own offset."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.harness.engine import Engine
from tests.harness.mysqld import TicketMySQL
from tests.harness.schema import SCHEMA


class MySQLPair:
    """Ticket databases with offsets 1 to n and increment n (or larger), started side by side."""

    def __init__(
        self,
        engine: Engine | Sequence[Engine],
        *,
        n: int = 2,
        increment: int | None = None,
        flags: Sequence[str] = (),
        binary_log: bool = False,
        tables: bool = True,
        folds_names: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """`engine`: one for all, or one for each, to mix MySQL and MariaDB."""
        engines = [engine] * n if isinstance(engine, Engine) else list(engine)
        self.increment = increment or len(engines)
        self.databases: list[TicketMySQL] = []
        try:
            for offset, each in enumerate(engines, 1):
                database = TicketMySQL(
                    each,
                    offset=offset,
                    increment=self.increment,
                    flags=flags,
                    binary_log=binary_log,
                    tables=tables,
                    folds_names=folds_names,
                    variables=variables,
                )
                self.databases.append(database)
        except BaseException:
            self.close()
            raise

    def __getitem__(self, index: int) -> TicketMySQL:
        return self.databases[index]

    def __iter__(self) -> Iterator[TicketMySQL]:
        return iter(self.databases)

    def __len__(self) -> int:
        return len(self.databases)

    def __enter__(self) -> "MySQLPair":
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def odd(self) -> TicketMySQL:
        return self.databases[0]

    @property
    def even(self) -> TicketMySQL:
        return self.databases[1]

    @property
    def urls(self) -> str:
        """The value of TICKETS_DATABASES."""
        return self.urls_of(SCHEMA)

    def urls_of(self, schema: str) -> str:
        return " ".join(database.url_of(schema) for database in self.databases)

    def start(self) -> None:
        """Start those that do not run, side by side, and wait for all."""
        for database in self.databases:
            if not database.running:
                database.start()
        for database in self.databases:
            database.wait_ready()

    def kill(self) -> None:
        """SIGKILL all of them."""
        for database in self.databases:
            database.kill()

    def close(self) -> None:
        """Kill all of them and remove their directories."""
        for database in self.databases:
            with contextlib.suppress(OSError):
                database.close()

    def make_flickrs_table(self, name: str, *, engine: str = "InnoDB", schema: str = SCHEMA) -> None:
        """A ticket table as Flickr published it, on each database."""
        for database in self.databases:
            database.make_flickrs_table(name, engine=engine, database=schema)

    def make_schema(self, name: str) -> "Schema":
        """A schema of this name on each database, with the tables of mysql_init/."""
        with ThreadPoolExecutor() as workers:
            list(workers.map(lambda database: database.make_schema(name), self.databases))
        return Schema(name, self)

    def all_largest_ids(self, table: str, schema: str = SCHEMA) -> list[int]:
        """MAX(id) of a sequence's table on each database."""
        return [database.largest_id(table, schema) for database in self.databases]


@dataclass(frozen=True)
class Schema:
    """One schema on all databases of a pair: a ticket pair of its own for one test, at the price of a few tables."""

    name: str
    pair: MySQLPair

    @property
    def urls(self) -> str:
        """The value of TICKETS_DATABASES."""
        return self.pair.urls_of(self.name)

    def make_flickrs_table(self, name: str, *, engine: str = "InnoDB") -> None:
        """A ticket table as Flickr published it, on each database."""
        self.pair.make_flickrs_table(name, engine=engine, schema=self.name)

    def execute(self, index: int, sql: str, arguments: object = None) -> list[tuple[object, ...]]:
        """Run one statement as root in this schema of one database."""
        return self.pair[index].execute(sql, arguments, database=self.name)
