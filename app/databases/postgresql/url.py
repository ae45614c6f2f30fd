"""The URL of a PostgreSQL ticket database, as it stands in TICKETS_DATABASES. Its words are libpq's."""

import ssl
from dataclasses import dataclass, field

from app.databases import urls
from app.databases.address import Address
from app.errors import SettingsError

_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_BINDINGS = ("disable", "prefer")
_OPTIONS = ("sslmode", "sslrootcert", "sslcrl", "sslcert", "sslkey", "channel_binding", "application_name")


@dataclass(frozen=True, slots=True)
class PostgreSQLAddress(Address):
    """The address of a PostgreSQL ticket database.

    sslmode: libpq's. sslrootcert, sslcrl, sslcert, sslkey: files with the certificates to trust, with the
    revoked ones, with the client's own, and with its key. application_name: the name in pg_stat_activity.
    """

    sslmode: str = "prefer"
    sslrootcert: str | None = None
    sslcrl: str | None = None
    sslcert: str | None = None
    sslkey: str | None = field(default=None, repr=False)
    application_name: str = "ticketd"

    @property
    def verifies(self) -> bool:
        """Whether the server has to show a certificate that `sslrootcert` signed."""
        return self.sslmode.startswith("verify")

    def tls(self) -> ssl.SSLContext | None:
        """Return what a new connection needs for TLS, from the files as they are now; None for sslmode=disable.

        Raises SettingsError where a file cannot be used. It blocks while it reads.
        """
        if self.sslmode == "disable":
            return None
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = self.sslmode == "verify-full"
            context.verify_mode = ssl.CERT_REQUIRED if self.verifies else ssl.CERT_NONE
            if self.verifies and self.sslrootcert == "system":  # what this machine trusts
                context.load_default_certs()
            elif self.verifies:
                context.load_verify_locations(self.sslrootcert)
            if self.sslcrl:
                context.load_verify_locations(self.sslcrl)
                context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
            if self.sslcert:
                context.load_cert_chain(self.sslcert, self.sslkey)
        except OSError as error:  # ssl.SSLError is one
            reason = "not PEM" if isinstance(error, ssl.SSLError) else error.strerror
            raise SettingsError(f"the TLS files of {self.name} cannot be used: {reason}") from error
        return context


def parse(text: str, default_password: str | None = None) -> PostgreSQLAddress:
    """Read one URL. Raises SettingsError, which says what is wrong and never repeats the URL."""
    parts = urls.read(text, ("postgresql", "postgres"), 5432, _OPTIONS)
    urls.check_key(parts, "sslkey", "sslcert")
    words = dict(parts.options)
    root, binding = words.get("sslrootcert"), words.pop("channel_binding", "prefer")
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
            raise SettingsError(f"{parts.where} has {complaint}")
    return PostgreSQLAddress(**(parts.address(default_password) | words | {"sslmode": mode}))
