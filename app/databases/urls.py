"""Reads the parts that the URLs of all database servers share. No error repeats the URL, which may hold a password."""

import re
from collections.abc import Collection
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from app.errors import SettingsError


class URLParts(NamedTuple):
    """A URL that was read.

    hosts: the host and port of each node. user, password, database: as `app.databases.address.Address` has them.
    options: the words after the URL's `?`. where: the name of the URL in an error, without a secret.
    """

    hosts: tuple[tuple[str, int], ...]
    user: str
    password: str | None
    database: str
    options: dict[str, str]
    where: str

    def address(self, default_password: str | None) -> dict[str, Any]:
        """What an `Address` is made of. default_password: for a URL that has none."""
        (host, port), *further = self.hosts
        password = default_password if self.password is None else self.password
        common = {"user": self.user, "database": self.database, "password": password}
        return {"host": host, "port": port, "further": tuple(further), **common}


def read(
    text: str,
    schemes: Collection[str],
    default_port: int,
    options: Collection[str],
    *,
    default_user: str = "",
    grouped: bool = False,
) -> URLParts:
    """Read one URL.

    schemes: what the URL may begin with, the recommended scheme first. options: the words that it may have after `?`.
    default_user: where the URL names none; empty: it has to. grouped: whether a group stands before the database, with
    a `/` between them.
    Raises SettingsError, which says what is wrong with the URL.
    """
    scheme, _, rest = text.partition("://")
    if not rest or scheme.lower() not in schemes:
        raise SettingsError(f"a URL has to begin with {next(iter(schemes))}://")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    if rest.count("@") > authority.count("@"):  # the host would be read from the password
        raise SettingsError(
            "a URL has a #, / or ? before the @ that ends its user and password: percent-encode what the password "
            "holds of # (%23), / (%2F), ? (%3F) and @ (%40)"
        )
    account, at, listed = authority.rpartition("@")
    hosts = tuple(_host(each, default_port) for each in listed.split(","))
    if len(set(hosts)) < len(hosts):
        raise SettingsError("a URL names a node twice")
    parts = urlsplit(f"{scheme}://{account}{at}host{rest[len(authority) :]}")
    if not (parts.username or default_user):
        raise SettingsError("a URL has to name a user and a host")
    where = f"the URL of {hosts[0][0]}:{hosts[0][1]}"
    database = _plain(parts.path.removeprefix("/"), "database", where)
    if not all(names := database.split("/")) or len(names) != 1 + grouped:
        what = "a group and one database" if grouped else "one database"
        raise SettingsError(f"{where} has to name {what} after the host")
    if "," in parts.path:
        raise SettingsError(f"{where} has a comma after its database: put white space between two URLs")
    if parts.fragment:
        raise SettingsError(f"{where} has a '#': write it as %23")
    user = _plain(parts.username or default_user, "user", where)
    password = None if parts.password is None else _plain(parts.password, "password", where)
    return URLParts(hosts, user, password, database, _options(parts.query, options, where), where)


def _host(text: str, default_port: int) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, default_port if parts.port is None else parts.port
    except ValueError:
        raise SettingsError("the host or port of a URL cannot be read") from None
    if port == 0:
        raise SettingsError("the port of a URL cannot be 0")
    if not host:
        raise SettingsError("a URL has to name a user and a host")
    return host, port


def check_key(parts: URLParts, key: str, certificate: str) -> None:
    """Raise SettingsError where the URL has the option for a private key and not the option for its certificate."""
    if key in parts.options and certificate not in parts.options:
        raise SettingsError(f"{parts.where} has {key} and no {certificate}: name both files, or neither")


def _plain(text: str, part: str, where: str) -> str:
    """Return a part of a URL without its percent-encoding. Raises SettingsError where it is not text."""
    try:
        plain = unquote(text, errors="strict")
        plain.encode()
    except UnicodeError:
        raise SettingsError(f"the {part} in {where} is not UTF-8") from None
    if "\0" in plain:
        raise SettingsError(f"the {part} in {where} has a NUL character")
    return plain


def _options(query: str, options: Collection[str], where: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict")
    except UnicodeError:
        raise SettingsError(f"{where} has an option that is not UTF-8") from None
    given: dict[str, str] = {}
    for option, value in pairs:
        if option not in options:
            raise SettingsError(f"{where} has the option {option}, which is not one of {', '.join(options)}")
        if option in given:
            raise SettingsError(f"{where} has the option {option} more than once")
        if not value:
            raise SettingsError(f"{where} has an empty {option}")
        given[option] = value
    return given
