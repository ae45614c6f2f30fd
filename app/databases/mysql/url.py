"""The URL of a MySQL or MariaDB ticket database, as it stands in TICKETS_DATABASES."""

from dataclasses import dataclass

from app.databases.address import Address, read_url
from app.errors import SettingsError

_FILES = ("ssl-ca", "ssl-cert", "ssl-key")
_MODES = ("DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")


@dataclass(frozen=True, slots=True)
class MySQLAddress(Address):
    """The address of a MySQL or MariaDB ticket database.

    ssl_mode: MySQL's word for whether the connection uses TLS. get_server_public_key: without TLS the driver may
    encrypt the password for any public key that the server sends.
    """

    ssl_mode: str = "PREFERRED"
    get_server_public_key: bool = False


def parse(text: str, default_password: str | None = None) -> MySQLAddress:
    """Read one URL. Raises SettingsError, which says what is wrong and never repeats the URL.

    default_password: for a URL that has none. `ssl-ca` always verifies: with it, PREFERRED and REQUIRED are read as
    VERIFY_CA.
    """
    url = read_url(text, default_password, ("mysql",), 3306, ("ssl-mode", *_FILES, "get-server-public-key"))
    mode, get_key = url.options.get("ssl-mode", "PREFERRED").upper(), url.options.get("get-server-public-key", "false")
    if mode not in _MODES:
        raise SettingsError(f"{url.where} has the ssl-mode {mode}, which is not one of {', '.join(_MODES)}")
    if "ssl-ca" in url.options and mode == "DISABLED":
        raise SettingsError(f"{url.where} has an ssl-ca, which verifies, and ssl-mode=DISABLED")
    if get_key.lower() not in ("true", "false"):
        raise SettingsError(f"{url.where} has a get-server-public-key that is neither true nor false")
    if "ssl-ca" in url.options and mode != "VERIFY_IDENTITY":
        mode = "VERIFY_CA"
    tls = url.tls(_FILES, verifies=mode.startswith("VERIFY"), verifies_host=mode == "VERIFY_IDENTITY")
    fields = url.fields | {"tls": None if mode == "DISABLED" else tls}
    return MySQLAddress(**fields, ssl_mode=mode, get_server_public_key=get_key.lower() == "true")
