"""The URL of a PostgreSQL ticket database, as it stands in TICKETS_DATABASES. Its words are libpq's."""

from dataclasses import dataclass

from app.databases.address import Address, read_url
from app.errors import SettingsError

_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_BINDINGS = ("disable", "prefer")
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")


@dataclass(frozen=True, slots=True)
class PostgreSQLAddress(Address):
    """The address of a PostgreSQL ticket database.

    sslmode: libpq's. application_name: the name in pg_stat_activity.
    """

    sslmode: str = "prefer"
    application_name: str = "ticketd"


def parse(text: str, default_password: str | None = None) -> PostgreSQLAddress:
    """Read one URL. Raises SettingsError, which says what is wrong and never repeats the URL."""
    options = ("sslmode", *_FILES, "channel_binding", "application_name")
    url = read_url(text, default_password, ("postgresql", "postgres"), 5432, options)
    words = url.options
    root, binding = words.get("sslrootcert"), words.get("channel_binding", "prefer")
    mode = words.get("sslmode", "verify-full" if root == "system" else "prefer")
    if mode == "require" and root is not None:
        mode = "verify-ca"  # as libpq takes it
    verifies = mode.startswith("verify")
    useless = [] if verifies else [word for word in ("sslrootcert", "sslcrl") if word in words]
    for is_wrong, complaint in (
        (binding not in _BINDINGS, f"channel_binding={binding}, which the driver cannot do: use sslmode=verify-full"),
        (mode not in _MODES, f"the sslmode {mode}, which is not one of {', '.join(_MODES)}"),
        (root == "system" and mode != "verify-full", "sslrootcert=system, which wants sslmode=verify-full"),
        (useless, f"an {' and an '.join(useless)}, and an sslmode that verifies nothing: set verify-full"),
        (verifies and root is None, f"sslmode={mode} and no sslrootcert: name a file, or write sslrootcert=system"),
    ):
        if is_wrong:
            raise SettingsError(f"{url.where} has {complaint}")
    tls = url.tls(_FILES, verifies=verifies, verifies_host=mode == "verify-full")
    if root == "system":  # what this machine trusts
        tls = tls._replace(ca=None)
    fields = url.fields | {"tls": None if mode == "disable" else tls}
    return PostgreSQLAddress(**fields, sslmode=mode, application_name=words.get("application_name", "ticketd"))
