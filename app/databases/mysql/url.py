"""The URL of a MySQL or MariaDB ticket database, as it stands in TICKETS_DATABASES."""

import ssl
from dataclasses import dataclass, field
from enum import StrEnum

from app.databases import urls
from app.databases.address import Address
from app.errors import SettingsError

SCHEMES = ("mysql",)
FORM = "mysql://user:password@host:port/database?ssl-mode=VERIFY_IDENTITY&ssl-ca=FILE"
_OPTIONS = ("ssl-mode", "ssl-ca", "ssl-cert", "ssl-key", "get-server-public-key")
_FLAGS = {"true": True, "false": False}


class SslMode(StrEnum):
    """MySQL's meanings of ssl-mode (MySQL Reference Manual, "Command Options for Encrypted Connections")."""

    DISABLED = "DISABLED"
    PREFERRED = "PREFERRED"
    REQUIRED = "REQUIRED"
    VERIFY_CA = "VERIFY_CA"
    VERIFY_IDENTITY = "VERIFY_IDENTITY"


@dataclass(frozen=True, slots=True)
class MySQLAddress(Address):
    """The address of a MySQL or MariaDB ticket database.

    ssl_mode: whether the connection uses TLS. ssl_ca, ssl_cert, ssl_key: files with the certificates to trust, the
    client's own certificate, and its key. get_server_public_key: without TLS the driver may encrypt the password for
    any public key that the server sends.
    """

    ssl_mode: SslMode = SslMode.PREFERRED
    ssl_ca: str | None = None
    ssl_cert: str | None = None
    ssl_key: str | None = field(default=None, repr=False)
    get_server_public_key: bool = False

    @property
    def wants_tls(self) -> bool:
        """Whether a connection without TLS is an error."""
        return self.ssl_mode not in (SslMode.DISABLED, SslMode.PREFERRED)

    def tls(self) -> ssl.SSLContext | None:
        """Return what a new connection needs for TLS, from the files as they are now; None for ssl-mode=DISABLED.

        Raises SettingsError where a file cannot be read. It blocks: loading the machine's certificates takes 0.1 s.
        """
        if self.ssl_mode is SslMode.DISABLED:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.ssl_mode is SslMode.VERIFY_IDENTITY
        try:
            if self.ssl_mode in (SslMode.VERIFY_CA, SslMode.VERIFY_IDENTITY):
                context.load_verify_locations(self.ssl_ca) if self.ssl_ca else context.load_default_certs()
            else:
                context.verify_mode = ssl.CERT_NONE
            if self.ssl_cert:
                context.load_cert_chain(self.ssl_cert, self.ssl_key)
        except OSError as error:  # ssl.SSLError is one
            reason = "not PEM" if isinstance(error, ssl.SSLError) else error.strerror
            raise SettingsError(f"the TLS files of {self.name} cannot be used: {reason}") from error
        return context


def parse(text: str, default_password: str | None = None) -> MySQLAddress:
    """Read one URL. Raises SettingsError, which says what is wrong and never repeats the URL.

    default_password: for a URL that has none. `ssl-ca` always verifies: with it, PREFERRED and REQUIRED are read as
    VERIFY_CA.
    """
    parts = urls.read(text, SCHEMES, 3306, _OPTIONS)
    options, where = parts.options, parts.where
    urls.check_key(parts, "ssl-key", "ssl-cert")
    word = options.get("ssl-mode", SslMode.PREFERRED).upper()
    if word not in SslMode.__members__:
        raise SettingsError(f"{where} has the ssl-mode {word}, which is not one of {', '.join(SslMode)}")
    mode, authority = SslMode(word), options.get("ssl-ca")
    if authority is not None and mode is SslMode.DISABLED:
        raise SettingsError(f"{where} has an ssl-ca, which verifies a certificate, and ssl-mode=DISABLED")
    if authority is not None and mode is not SslMode.VERIFY_IDENTITY:
        mode = SslMode.VERIFY_CA
    get_key = options.get("get-server-public-key", "false").lower()
    if get_key not in _FLAGS:
        raise SettingsError(f"{where} has a get-server-public-key that is neither true nor false")
    return MySQLAddress(
        host=parts.host,
        port=parts.port,
        user=parts.user,
        database=parts.database,
        password=default_password if parts.password is None else parts.password,
        ssl_mode=mode,
        ssl_ca=authority,
        ssl_cert=options.get("ssl-cert"),
        ssl_key=options.get("ssl-key"),
        get_server_public_key=_FLAGS[get_key],
    )
