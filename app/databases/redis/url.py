"""The URL of a Redis ticket database, as it stands in TICKETS_DATABASES."""

from dataclasses import dataclass, field

from app.databases.address import Address, read_url
from app.errors import SettingsError

OPTIONS = {"redis": (), "rediss": ("ssl_ca_certs",), "redis+sentinel": ("sentinel_password",)}
"""The schemes, and the options of each."""


@dataclass(frozen=True, slots=True)
class RedisAddress(Address):
    """The address of a Redis ticket database.

    database: its number. group: the name by which Sentinels know the server; the nodes are the Sentinels then.
    sentinel_password: of these.
    """

    group: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)


def parse(text: str, default_password: str | None = None) -> RedisAddress:
    """Read one URL. Raises SettingsError, which says what is wrong and never repeats the URL."""
    scheme = text.partition("://")[0].lower()
    by_sentinel = scheme == "redis+sentinel"
    port, options = 26379 if by_sentinel else 6379, OPTIONS.get(scheme, ())
    url = read_url(text, default_password, OPTIONS, port, options, default_user="default", grouped=by_sentinel)
    group, _, number = url.fields["database"].rpartition("/")
    if url.fields["further"] and not by_sentinel:
        raise SettingsError(f"{url.where} names several servers: Redis has several nodes by redis+sentinel://")
    if not number.isdecimal():
        raise SettingsError(f"{url.where} has to name the number of a database after the host, as in /0")
    tls = url.tls(options, verifies=True, verifies_host=True) if scheme == "rediss" else None
    fields = url.fields | {"database": number, "tls": tls}
    return RedisAddress(**fields, group=group or None, sentinel_password=url.options.get("sentinel_password"))
