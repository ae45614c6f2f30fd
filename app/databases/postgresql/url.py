"""The URL of a PostgreSQL ticket database, as it stands in TICKETS_DATABASES. Its words are libpq's."""

import ssl
from dataclasses import dataclass, field
from enum import StrEnum

from app.common.errors import SettingsError
from app.databases import urls

SCHEMES = ("postgresql", "postgres")
FORM = "postgresql://user:password@host:port/database?sslmode=verify-full&sslrootcert=FILE"
_OPTIONS = ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "channel_binding", "application_name")
_BINDINGS = ("disable", "prefer", "require")
_SYSTEM = "system"
"""As `sslrootcert`: the certificates that this machine trusts."""


class SslMode(StrEnum):
    """libpq's meanings of sslmode (PostgreSQL's manual, "SSL Support")."""

    DISABLE = "disable"
    ALLOW = "allow"
    PREFER = "prefer"
    REQUIRE = "require"
    VERIFY_CA = "verify-ca"
    VERIFY_FULL = "verify-full"


@dataclass(frozen=True, slots=True)
class PostgreSQLURL(urls.ServerURL):
    """The URL of a PostgreSQL ticket database.

    `sslmode`: whether TLS is used. `sslrootcert`, `sslcrl`, `sslcert`, `sslkey`: files with the certificates to trust,
    those that were revoked, the client's own, and its key. `application_name`: the name in pg_stat_activity.
    """

    sslmode: SslMode = SslMode.PREFER
    sslrootcert: str | None = None
    sslcrl: str | None = None
    sslcert: str | None = None
    sslkey: str | None = field(default=None, repr=False)
    application_name: str = "ticketd"

    @property
    def verifies(self) -> bool:
        """Whether the server has to show a certificate that `sslrootcert` signed."""
        return self.sslmode in (SslMode.VERIFY_CA, SslMode.VERIFY_FULL)

    def check(self) -> None:
        """See Address.check. Raises SettingsError as well where the driver is not installed."""
        self.ssl_context()
        check_driver()

    def ssl_context(self) -> ssl.SSLContext | None:
        """The context for TLS; None for sslmode=disable. Raises SettingsError where a file cannot be used."""
        if self.sslmode is SslMode.DISABLE:
            return None
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            # on by default from Python 3.13; libpq does not ask for the extensions that it wants
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            context.check_hostname = self.sslmode is SslMode.VERIFY_FULL
            context.verify_mode = ssl.CERT_REQUIRED if self.verifies else ssl.CERT_NONE
            if self.verifies and self.sslrootcert == _SYSTEM:
                context.load_default_certs()
            elif self.verifies:
                context.load_verify_locations(self.sslrootcert)
            if self.sslcrl:
                context.load_verify_locations(self.sslcrl)
                context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
            if self.sslcert:
                context.load_cert_chain(self.sslcert, self.sslkey)
        except (OSError, ssl.SSLError) as error:
            words = error.strerror if type(error) is not ssl.SSLError and error.strerror else "not PEM"
            raise SettingsError(f"the TLS files of {self.name} cannot be used: {words}") from error
        return context

    @classmethod
    def parse(cls, text: str, default_password: str | None = None) -> "PostgreSQLURL":
        """Read one URL; raise SettingsError, which says what is wrong and never repeats the URL, if it is not one."""
        parts = urls.read(text, SCHEMES, 5432, _OPTIONS)
        words, where = parts.options, parts.where
        urls.check_key(parts, "sslkey", "sslcert")
        _check_binding(words.get("channel_binding", "prefer"), where)
        found = cls(
            host=parts.host,
            port=parts.port,
            user=parts.user,
            database=parts.database,
            password=default_password if parts.password is None else parts.password,
            sslmode=_effective(words.get("sslmode"), words.get("sslrootcert"), where),
            sslrootcert=words.get("sslrootcert"),
            sslcrl=words.get("sslcrl"),
            sslcert=words.get("sslcert"),
            sslkey=words.get("sslkey"),
            application_name=words.get("application_name", "ticketd"),
        )
        if found.sslcrl is not None and not found.verifies:
            raise SettingsError(f"{where} has an sslcrl, and an sslmode that verifies nothing: set verify-full")
        return found


def check_driver() -> None:
    """Raise SettingsError where the driver is not installed."""
    try:
        import asyncpg as _  # noqa: F401
    except ImportError:
        raise SettingsError(
            "a postgresql:// URL needs asyncpg, which is not installed: pip install 'ticket-server[postgresql]'"
        ) from None


def _effective(mode: str | None, rootcert: str | None, where: str) -> SslMode:
    """The mode that is meant, as libpq takes it. Raises SettingsError where the words contradict each other."""
    if mode is not None and mode not in [str(each) for each in SslMode]:
        raise SettingsError(f"{where} has the sslmode {mode}, which is not one of {', '.join(SslMode)}")
    if rootcert == _SYSTEM:
        if mode not in (None, SslMode.VERIFY_FULL):
            raise SettingsError(f"{where} has sslrootcert=system, which works only with sslmode=verify-full")
        return SslMode.VERIFY_FULL
    found = SslMode(mode or SslMode.PREFER)
    if rootcert is not None and found is SslMode.REQUIRE:
        return SslMode.VERIFY_CA
    if rootcert is not None and found not in (SslMode.VERIFY_CA, SslMode.VERIFY_FULL):
        raise SettingsError(f"{where} has an sslrootcert, and an sslmode that verifies nothing: set verify-full")
    if rootcert is None and found in (SslMode.VERIFY_CA, SslMode.VERIFY_FULL):
        raise SettingsError(f"{where} has sslmode={found} and no sslrootcert: name a file, or write sslrootcert=system")
    return found


def _check_binding(binding: str, where: str) -> None:
    if binding not in _BINDINGS:
        raise SettingsError(f"{where} has the channel_binding {binding}, which is not one of {', '.join(_BINDINGS)}")
    if binding == "require":
        raise SettingsError(
            f"{where} has channel_binding=require, which the driver cannot do: use sslmode=verify-full instead"
        )
