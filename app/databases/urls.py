"""Reads the parts that the URLs of all database servers share. No error repeats the URL, which may hold a password."""

import re
from collections import Counter
from collections.abc import Collection
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from app.errors import SettingsError


class URLParts(NamedTuple):
    """A URL that was read.

    host, port, user, password, database: as `app.databases.address.Address` has them. options: the words after the
    URL's `?`. where: the name of the URL in an error, without a secret.
    """

    host: str
    port: int
    user: str
    password: str | None
    database: str
    options: dict[str, str]
    where: str


def read(text: str, schemes: Collection[str], default_port: int, options: Collection[str]) -> URLParts:
    """Read one URL.

    schemes: what the URL may begin with, the recommended scheme first. options: the words that it may have after `?`.
    Raises SettingsError, which says what is wrong with the URL.
    """
    authority = _authority(text, schemes)
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
    database = _plain(parts.path.removeprefix("/"), "database", where)
    if not database or "/" in database:
        raise SettingsError(f"{where} has to name one database after the host")
    if "," in parts.path:
        raise SettingsError(f"{where} has a comma after its database: put white space between two URLs")
    if parts.fragment:
        raise SettingsError(f"{where} has a '#': write it as %23")
    user = _plain(parts.username, "user", where)
    password = None if parts.password is None else _plain(parts.password, "password", where)
    return URLParts(host, port, user, password, database, _options(parts.query, options, where), where)


def check_key(parts: URLParts, key: str, certificate: str) -> None:
    """Raise SettingsError where the URL has the option for a private key and not the option for its certificate."""
    if key in parts.options and certificate not in parts.options:
        raise SettingsError(f"{parts.where} has {key} and no {certificate}: name both files, or neither")


def _authority(text: str, schemes: Collection[str]) -> str:
    """Return the user, password, host and port of a URL, undivided.

    Raises SettingsError where a character of the password ends this part too early. The host would then be read from
    the password, so the error repeats nothing of the URL.
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
    return given
