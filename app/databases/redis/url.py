"""The URL of a Redis ticket database, as it stands in TICKETS_DATABASES."""

import ssl
from dataclasses import dataclass, field

from app.databases import urls
from app.databases.address import Address
from app.errors import SettingsError

OPTIONS = {"redis": (), "rediss": ("ssl_ca_certs",), "redis+sentinel": ("sentinel_password",)}
"""The schemes, and the options of each."""


@dataclass(frozen=True, slots=True)
class RedisAddress(Address):
    """The address of a Redis ticket database.

    database: its number. encrypts: whether the connection is encrypted; the server's certificate is verified then.
    ssl_ca_certs: a file with the certificates to trust, None for those that this machine trusts. group: the name by
    which Sentinels know the server; the nodes are the Sentinels then. sentinel_password: of these.
    """

    encrypts: bool = False
    ssl_ca_certs: str | None = None
    group: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)

    def tls(self) -> ssl.SSLContext | None:
        """Return what a new connection needs for TLS, from the file as it is now; None where it is not encrypted.

        Raises SettingsError where the file cannot be used. It blocks while it reads.
        """
        try:
            return ssl.create_default_context(cafile=self.ssl_ca_certs) if self.encrypts else None
        except OSError as error:  # ssl.SSLError is one
            reason = "not PEM" if isinstance(error, ssl.SSLError) else error.strerror
            raise SettingsError(f"the ssl_ca_certs of {self.name} cannot be used: {reason}") from error


def parse(text: str, default_password: str | None = None) -> RedisAddress:
    """Read one URL. Raises SettingsError, which says what is wrong and never repeats the URL."""
    scheme = text.partition("://")[0].lower()
    by_sentinel = scheme == "redis+sentinel"
    port, options = 26379 if by_sentinel else 6379, OPTIONS.get(scheme, ())
    parts = urls.read(text, OPTIONS, port, options, default_user="default", grouped=by_sentinel)
    group, _, number = parts.database.rpartition("/")
    if len(parts.hosts) > 1 and not by_sentinel:
        raise SettingsError(f"{parts.where} names several servers: Redis has several nodes by redis+sentinel://")
    if not number.isdecimal():
        raise SettingsError(f"{parts.where} has to name the number of a database after the host, as in /0")
    common = parts._replace(database=number).address(default_password)
    return RedisAddress(**(common | parts.options), encrypts=scheme == "rediss", group=group or None)
