"""The address of a ticket database, as every engine's URL says it."""

from dataclasses import dataclass, field, replace
from typing import Self


@dataclass(frozen=True, slots=True)
class Address:
    """Where a ticket database is, and how to log in there. Neither its `repr` nor an error holds the password.

    host, port: of the server, or of the first of several nodes. user, password: to log in with. database: the database
    (schema, file) there. An engine adds what its URL may say besides.
    """

    host: str
    port: int
    user: str
    database: str
    password: str | None = field(default=None, repr=False)
    further: tuple[tuple[str, int], ...] = ()
    """The hosts and ports of the other nodes that hold the same data, in their order."""

    @property
    def name(self) -> str:
        """host:port, as operators see it. An IPv6 address stands in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def nodes(self) -> list[Self]:
        """The address of each node by itself, in their order."""
        first = replace(self, further=())
        return [first, *(replace(first, host=host, port=port) for host, port in self.further)]
