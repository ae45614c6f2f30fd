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
    """Read one URL. Raises SettingsError, which says what is wrong with it.

    schemes: what the URL may begin with, the recommended scheme first. options: the words that it may have after `?`.
    default_user: where the URL names none; empty: it has to. grouped: whether a group stands before the database, with
    a `/` between them.
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
    try:
        nodes = [urlsplit(f"//{each}") for each in listed.split(",")]
        hosts = tuple((node.hostname or "", default_port if node.port is None else node.port) for node in nodes)
        parts = urlsplit(f"{scheme}://{account}{at}host{rest[len(authority) :]}")
    except ValueError:
        raise SettingsError("the host or port of a URL cannot be read") from None
    where, user = f"the URL of {hosts[0][0]}:{hosts[0][1]}", parts.username or default_user
    wanted = "a group and one database" if grouped else "one database"
    names = parts.path.removeprefix("/").split("/")
    for is_wrong, complaint in (
        (not all(host for host, _ in hosts) or not user, "a URL has to name a user and a host"),
        (not all(port for _, port in hosts), "the port of a URL cannot be 0"),
        (len(set(hosts)) < len(hosts), "a URL names a node twice"),
        (not _is_text(text), f"the options, database, user or password in {where} is not UTF-8, or has a NUL"),
        (not all(names) or len(names) != 1 + grouped, f"{where} has to name {wanted} after the host"),
        ("," in parts.path, f"{where} has a comma after its database: put white space between two URLs"),
        (parts.fragment, f"{where} has a '#': write it as %23"),
    ):
        if is_wrong:
            raise SettingsError(complaint)
    password = None if parts.password is None else unquote(parts.password)
    given = _options(parts.query, options, where)
    return URLParts(hosts, unquote(user), password, unquote("/".join(names)), given, where)


def _is_text(text: str) -> bool:
    """Tell whether a URL is UTF-8 without its percent-encoding, and has no NUL character."""
    try:
        return b"\0" not in unquote(text, errors="strict").encode()
    except UnicodeError:
        return False


def _options(query: str, options: Collection[str], where: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for option, value in parse_qsl(query, keep_blank_values=True):
        if option not in options:
            raise SettingsError(f"{where} has the option {option}, which is not one of {', '.join(options)}")
        if option in given:
            raise SettingsError(f"{where} has the option {option} more than once")
        if not value:
            raise SettingsError(f"{where} has an empty {option}")
        given[option] = value
    return given


def check_key(parts: URLParts, key: str, certificate: str) -> None:
    """Raise SettingsError where the URL has the option for a private key and not the option for its certificate."""
    if key in parts.options and certificate not in parts.options:
        raise SettingsError(f"{parts.where} has {key} and no {certificate}: name both files, or neither")
