"""An engine, as the program needs it before there is a ticket database of it.

Each folder of an engine has one `Engine`, in its file `engine.py`; `engines` lists them all. Everything else about an
engine is behind the protocol of a ticket database.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Generic, NamedTuple, Self, TypeVar

from app.common.errors import SettingsError
from app.databases.inspection import Inspector
from app.databases.protocol import TicketDatabase


class Address(ABC):
    """Where a ticket database is, and how to log in there. Neither its `repr` nor its errors hold a secret."""

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """See TicketDatabase.name."""

    def with_password(self, password: str) -> Self:
        """The same address with this password, if it names a user without one."""
        return self

    def check(self) -> None:
        """Raise SettingsError unless the files that the address names can be used."""
        return


class Used(NamedTuple):
    """Which ids somebody else's counter has used. `largest`: the largest number that is stored. `counted`: the last one
    that the counter has given, deleted rows included."""

    largest: int
    counted: int

    @property
    def last(self) -> int:
        return max(self.largest, self.counted)


class Source(ABC):
    """A counter that is no ticket sequence, in a database of this engine: `ticketd bump --from` reads it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Which one it is, as an operator sees it; never a secret."""

    @property
    @abstractmethod
    def server(self) -> str:
        """The host and port, or the file, that it is read from."""

    @abstractmethod
    async def used(self) -> Used:
        """The ids that the table has used. Raises TicketDatabaseError, in our words and without the server's name."""


A = TypeVar("A", bound=Address)


class Engine(ABC, Generic[A]):
    """One kind of database that tickets can be drawn from.

    `name`: as operators call it. `scheme`: what its URLs begin with, empty where it has none, and `aliases`: what they
    may begin with instead. `address`: the class of its addresses. `url_form`: how one of its URLs reads, and
    `example_url` one for the host `{host}`. `source_form`, `example_source`: the same for what `bump --from` can read.
    `increment_setting`: what its servers call the increment. `drivers`: the packages that its folder alone may import.
    """

    name: ClassVar[str]
    scheme: ClassVar[str] = ""
    aliases: ClassVar[tuple[str, ...]] = ()
    address: type[A]
    url_form: ClassVar[str] = ""
    example_url: ClassVar[str] = ""
    source_form: ClassVar[str] = ""
    example_source: ClassVar[str] = ""
    increment_setting: ClassVar[str] = ""
    drivers: ClassVar[tuple[str, ...]] = ()

    def read_url(self, text: str) -> A:
        """The address that a URL of this scheme names. Raises SettingsError, which never repeats the URL."""
        raise SettingsError(f"{self.name} has no URLs")

    def read_source(self, text: str, password: str | None) -> Source:
        """The counter that a URL of this scheme names. `password`: in place of the URL's. Raises SettingsError, which
        never repeats the URL."""
        raise SettingsError(f"{self.name} has no counters to read")

    @abstractmethod
    def make_database(
        self, address: A, offset: int, increment: int, timeout: float, on_retry: Callable[[str], None]
    ) -> TicketDatabase:
        """See `engines.make_database`; `on_retry` is told the cause alone."""

    @abstractmethod
    def make_inspector(self, address: A, offset: int, increment: int, timeout: float) -> Inspector:
        """See `engines.make_inspector`."""
