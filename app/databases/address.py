"""The address of a ticket database, and the parts that the URLs of all database servers share.

No error repeats a URL, which may hold a password.
"""

import re
import ssl
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from app.errors import SettingsError


class TLS(NamedTuple):
    """What a connection with TLS verifies, and the files that it needs.

    verifies, verifies_host: the server's certificate, and that it is the host's. ca: the certificates to trust, None
    for those that this machine trusts. certificate, key: the client's own. crl: the certificates that were revoked.
    """

    verifies: bool = True
    verifies_host: bool = True
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    crl: str | None = None


@dataclass(frozen=True, slots=True)
class Address:
    """Where a ticket database is, and how to log in there. Neither its `repr` nor an error holds the password.

    host, port: of the server, or of the first of several nodes. user, password: to log in with. database: the database
    (schema, file) there. tls: None where a connection uses none. An engine adds what its URL may say besides.
    """

    host: str
    port: int
    user: str
    database: str
    password: str | None = field(default=None, repr=False)
    further: tuple[tuple[str, int], ...] = ()
    """The hosts and ports of the other nodes that hold the same data, in their order."""
    tls: TLS | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """host:port, as operators see it. An IPv6 address stands in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def nodes(self) -> list[Self]:
        """The address of each node by itself, in their order."""
        first = replace(self, further=())
        return [first, *(replace(first, host=host, port=port) for host, port in self.further)]

    def tls_context(self) -> ssl.SSLContext | None:
        """Return what a new connection needs for TLS, from the files as they are now; None where it uses none.

        Raises SettingsError where a file cannot be used. It blocks: loading the machine's certificates takes 0.1 s.
        """
        if self.tls is None:
            return None
        verifies, verifies_host, ca, certificate, key, crl = self.tls
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = verifies_host
        context.verify_mode = ssl.CERT_REQUIRED if verifies else ssl.CERT_NONE
        try:
            if verifies:
                context.load_verify_locations(ca) if ca else context.load_default_certs()
            if crl:
                context.load_verify_locations(crl)
                context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
            if certificate:
                context.load_cert_chain(certificate, key)
        except OSError as error:  # ssl.SSLError is one
            reason = "not PEM" if isinstance(error, ssl.SSLError) else error.strerror
            raise SettingsError(f"the TLS files of {self.name} cannot be used: {reason}") from error
        return context


class URL(NamedTuple):
    """A URL that was read.

    fields: what an `Address` is made of. options: the words after the URL's `?`. where: the name of the URL in an
    error, without a secret.
    """

    fields: dict[str, Any]
    options: dict[str, str]
    where: str

    def tls(self, files: Collection[str], *, verifies: bool, verifies_host: bool) -> TLS:
        """Return a TLS. files: the options that name its files, in their order. Raises SettingsError."""
        tls = TLS(verifies, verifies_host, *map(self.options.get, files))
        if tls.key and not tls.certificate:
            _, certificate, key, *_ = files
            raise SettingsError(f"{self.where} has {key} and no {certificate}: name both files, or neither")
        return tls


def read_url(
    text: str,
    default_password: str | None,
    schemes: Collection[str],
    default_port: int,
    options: Collection[str],
    *,
    default_user: str = "",
    grouped: bool = False,
) -> URL:
    """Read one URL. Raises SettingsError, which says what is wrong with it.

    default_password: for a URL that has none. schemes: what the URL may begin with, the recommended scheme first.
    options: the words that it may have after `?`. default_user: where the URL names none; empty: it has to. grouped:
    whether a group stands before the database, with a `/` between them.
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
    (host, port), *further = hosts
    where, user = f"the URL of {host}:{port}", parts.username or default_user
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
    password = default_password if parts.password is None else unquote(parts.password)
    fields = {"host": host, "port": port, "further": tuple(further), "user": unquote(user), "password": password}
    return URL(fields | {"database": unquote("/".join(names))}, _options(parts.query, options, where), where)


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
