"""The URL of a MySQL or MariaDB ticket database, as it stands in TICKETS_DATABASES."""

import ssl
from dataclasses import dataclass, field

from app.databases import urls
from app.databases.address import Address
from app.errors import SettingsError

_OPTIONS = ("ssl-mode", "ssl-ca", "ssl-cert", "ssl-key", "get-server-public-key")
_MODES = ("DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")


@dataclass(frozen=True, slots=True)
class MySQLAddress(Address):
    """The address of a MySQL or MariaDB ticket database.

    ssl_mode: MySQL's word for whether the connection uses TLS. ssl_ca, ssl_cert, ssl_key: files with the certificates
    to trust, the client's own certificate, and its key. get_server_public_key: without TLS the driver may encrypt the
    password for any public key that the server sends.
    """

    ssl_mode: str = "PREFERRED"
    ssl_ca: str | None = None
    ssl_cert: str | None = None
    ssl_key: str | None = field(default=None, repr=False)
    get_server_public_key: bool = False

    def tls(self) -> ssl.SSLContext | None:
        """Return what a new connection needs for TLS, from the files as they are now; None for ssl-mode=DISABLED.

        Raises SettingsError where a file cannot be read. It blocks: loading the machine's certificates takes 0.1 s.
        """
        if self.ssl_mode == "DISABLED":
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.ssl_mode == "VERIFY_IDENTITY"
        try:
            if self.ssl_mode.startswith("VERIFY"):
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
    parts = urls.read(text, ("mysql",), 3306, _OPTIONS)
    urls.check_key(parts, "ssl-key", "ssl-cert")
    given = {option.replace("-", "_"): value for option, value in parts.options.items()}
    mode, get_key = given.pop("ssl_mode", "PREFERRED").upper(), given.pop("get_server_public_key", "false").lower()
    if mode not in _MODES:
        raise SettingsError(f"{parts.where} has the ssl-mode {mode}, which is not one of {', '.join(_MODES)}")
    if "ssl_ca" in given and mode == "DISABLED":
        raise SettingsError(f"{parts.where} has an ssl-ca, which verifies, and ssl-mode=DISABLED")
    if get_key not in ("true", "false"):
        raise SettingsError(f"{parts.where} has a get-server-public-key that is neither true nor false")
    if "ssl_ca" in given and mode != "VERIFY_IDENTITY":
        mode = "VERIFY_CA"
    fields = parts.address(default_password) | given
    return MySQLAddress(**fields, ssl_mode=mode, get_server_public_key=get_key == "true")
