"""The URL of a MySQL ticket database, as it stands in TICKETS_DATABASES."""

import ssl
from dataclasses import dataclass, field
from enum import StrEnum

from app.common.errors import SettingsError
from app.databases import urls

SCHEMES = ("mysql",)
FORM = "mysql://user:password@host:port/database?ssl-mode=VERIFY_IDENTITY&ssl-ca=FILE"
_OPTIONS = ("ssl-mode", "ssl-ca", "ssl-cert", "ssl-key", "get-server-public-key")
_FLAGS = {"true": True, "false": False}


class SslMode(StrEnum):
    """MySQL's meanings of ssl-mode (MySQL Reference Manual, "Command Options for Encrypted Connections").

    But `ssl-ca` always verifies: with it, PREFERRED and REQUIRED are read as VERIFY_CA.
    """

    DISABLED = "DISABLED"
    PREFERRED = "PREFERRED"
    REQUIRED = "REQUIRED"
    VERIFY_CA = "VERIFY_CA"
    VERIFY_IDENTITY = "VERIFY_IDENTITY"


@dataclass(frozen=True, slots=True)
class DatabaseURL(urls.ServerURL):
    """The URL of a MySQL or MariaDB ticket database.

    `ssl_mode`: whether TLS is used. `ssl_ca`, `ssl_cert`, `ssl_key`: files with the certificates to trust, the client's
    own, and its key. `get_server_public_key`: without TLS the password may be sent, encrypted for any public key that
    the server names.
    """

    ssl_mode: SslMode = SslMode.PREFERRED
    ssl_ca: str | None = None
    ssl_cert: str | None = None
    ssl_key: str | None = field(default=None, repr=False)
    get_server_public_key: bool = False

    @property
    def wants_tls(self) -> bool:
        """Whether a connection without TLS is an error."""
        return self.ssl_mode in (SslMode.REQUIRED, SslMode.VERIFY_CA, SslMode.VERIFY_IDENTITY)

    @property
    def verifies(self) -> bool:
        """Whether the server's certificate has to be one that is trusted."""
        return self.ssl_mode in (SslMode.VERIFY_CA, SslMode.VERIFY_IDENTITY)

    def check(self) -> None:
        """See Address.check."""
        self.ssl_context()

    def ssl_context(self) -> ssl.SSLContext | None:
        """The context for the driver; None for ssl-mode=DISABLED. Raises SettingsError where a file cannot be read."""
        if self.ssl_mode is SslMode.DISABLED:
            return None
        try:
            if self.verifies:
                context = ssl.create_default_context(cafile=self.ssl_ca)
            else:  # it reads the machine's certificates, a tenth of a second that nobody needs
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            # on by default from Python 3.13, and the certificates that MySQL makes lack the extensions it asks for
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            context.check_hostname = self.ssl_mode is SslMode.VERIFY_IDENTITY
            context.verify_mode = ssl.CERT_REQUIRED if self.verifies else ssl.CERT_NONE
            if self.ssl_cert:
                context.load_cert_chain(self.ssl_cert, self.ssl_key)
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(
                f"the TLS files of {self.name} cannot be used: {error.strerror or 'not PEM'}"
            ) from error
        return context

    @classmethod
    def parse(cls, text: str, default_password: str | None = None) -> "DatabaseURL":
        """Read one URL; raise SettingsError, which says what is wrong and never repeats the URL, if it is not one."""
        parts = urls.read(text, SCHEMES, 3306, _OPTIONS)
        options, where = parts.options, parts.where
        urls.check_key(parts, "ssl-key", "ssl-cert")
        mode = options.get("ssl-mode", SslMode.PREFERRED).upper()
        if mode not in SslMode.__members__:
            raise SettingsError(f"{where} has the ssl-mode {mode}, which is not one of {', '.join(SslMode)}")
        get_key = options.get("get-server-public-key", "false").lower()
        if get_key not in _FLAGS:
            raise SettingsError(f"{where} has a get-server-public-key that is neither true nor false")
        return cls(
            host=parts.host,
            port=parts.port,
            user=parts.user,
            database=parts.database,
            password=default_password if parts.password is None else parts.password,
            ssl_mode=_effective(SslMode(mode), options.get("ssl-ca"), where),
            ssl_ca=options.get("ssl-ca"),
            ssl_cert=options.get("ssl-cert"),
            ssl_key=options.get("ssl-key"),
            get_server_public_key=_FLAGS[get_key],
        )


def _effective(mode: SslMode, ssl_ca: str | None, where: str) -> SslMode:
    """The mode that is meant where `ssl-ca` is given. Raises SettingsError where it could not verify anything."""
    if ssl_ca is None:
        return mode
    if mode is SslMode.DISABLED:
        raise SettingsError(f"{where} has an ssl-ca, which verifies a certificate, and ssl-mode=DISABLED")
    return mode if mode is SslMode.VERIFY_IDENTITY else SslMode.VERIFY_CA
