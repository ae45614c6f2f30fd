"""Reads the parts that the URLs of all database servers share. No error repeats the URL, which may hold a password."""

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from app.common.errors import SettingsError
from app.databases.engine import Address


@dataclass(frozen=True, slots=True)
class ServerURL(Address):
    """The address of a database on a server, and a login there. Its `repr` and its errors never hold the password.

    `host`, `port`: of the server. `user`, `password`: to log in with. `database`: the database, or schema, there.
    """

    host: str
    port: int
    user: str
    database: str
    password: str | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """host:port, as operators see it; an IPv6 address stands in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def with_password(self, password: str) -> Self:
        """See Address.with_password."""
        return replace(self, password=password) if self.password is None else self


class URLParts(NamedTuple):
    """A URL that was read. `options`: the words after its `?`. `where`: its name in an error; never a secret."""

    host: str
    port: int
    user: str
    password: str | None
    database: str
    options: dict[str, str]
    where: str


def check_login(text: str, schemes: Collection[str]) -> str:
    """The user, password, host and port of a URL, undivided. `schemes`: what it may begin with, the first of them best.

    Raises SettingsError where a character of the password ends it too early. The host would be read from the password
    then, so the error repeats nothing of the URL.
    """
    scheme, found, rest = text.partition("://")
    if not found or scheme.lower() not in schemes:
        raise SettingsError(f"a URL has to begin with {next(iter(schemes))}://")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    if rest.count("@") > authority.count("@"):
        raise SettingsError(
            "a URL has a #, / or ? before the @ that ends its user and password: percent-encode what the password "
            "holds of # (%23), / (%2F), ? (%3F) and @ (%40)"
        )
    return authority


def read(text: str, schemes: Collection[str], default_port: int, options: Collection[str]) -> URLParts:
    """Read one URL, which may have these options. Raises SettingsError, which says what is wrong, if it is not one."""
    authority = check_login(text, schemes)
    if "," in authority.rpartition("@")[2]:
        raise SettingsError("a URL names several nodes, which is not supported: name one host in each URL")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise SettingsError("the host or port of a URL cannot be read") from None
    port = default_port if port is None else port
    if port == 0:
        raise SettingsError("the port of a URL cannot be 0")
    if not host or not parts.username:
        raise SettingsError("a URL has to name a user and a host")
    where = f"the URL of {host}:{port}"
    database = unquote(parts.path.removeprefix("/"))
    if not database or "/" in database:
        raise SettingsError(f"{where} has to name one database after the host")
    if "," in parts.path:
        raise SettingsError(f"{where} has a comma after its database: put white space between two URLs")
    if parts.fragment:
        raise SettingsError(f"{where} has a '#': write it as %23")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    given = dict(pairs)
    unknown = sorted(given.keys() - set(options))
    if unknown:
        raise SettingsError(f"{where} has the option {unknown[0]}, which is not one of {', '.join(options)}")
    repeated = [option for option, times in Counter(option for option, _ in pairs).items() if times > 1]
    if repeated:
        raise SettingsError(f"{where} has the option {repeated[0]} more than once")
    empty = sorted(option for option, value in pairs if not value)
    if empty:
        raise SettingsError(f"{where} has an empty {empty[0]}")
    password = None if parts.password is None else unquote(parts.password)
    return URLParts(host, port, unquote(parts.username), password, database, given, where)


def check_key(parts: URLParts, key: str, certificate: str) -> None:
    """Raise SettingsError where the URL has the option for a private key, and not the one for its certificate."""
    if key in parts.options and certificate not in parts.options:
        raise SettingsError(f"{parts.where} has {key} and no {certificate}: name both files, or neither")


def without_last(text: str, schemes: Collection[str]) -> tuple[str, str]:
    """A URL without the last part of its path, and that part, still escaped. Raises SettingsError where there are not
    two parts."""
    check_login(text, schemes)
    try:
        parts = urlsplit(text)
    except ValueError:
        raise SettingsError("the URL cannot be read") from None
    path, _, last = parts.path.rpartition("/")
    if not path.strip("/"):
        raise SettingsError("the URL does not end in a database and the name of a counter in it")
    return urlunsplit(parts._replace(path=path)), last
