"""The address of a ticket database, as every engine's URL says it."""

from dataclasses import dataclass, field


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

    @property
    def name(self) -> str:
        """host:port, as operators see it. An IPv6 address stands in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
