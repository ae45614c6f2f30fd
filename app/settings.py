"""The settings: read once, from flags, from the environment, and from the files that TICKETS_…_FILE name.

A misspelt setting would leave its default in force: TICKETS_DATABASE for TICKETS_DATABASES would mean the tickets 1, 2,
3 … of a new embedded pair. So every name that looks like a setting and is none stops the start.
"""

import ipaddress
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, Field, SecretStr, ValidationError, ValidationInfo, field_validator

from app.databases.address import Address
from app.databases.engines import parse_list
from app.errors import SettingsError

FILE = "_FILE"
SERVICE_VALUES = "tcp://", "udp://"
"""Kubernetes and Docker begin so the values of variables that they name after a service."""
_PASSED_OVER = re.compile(
    r"TICKETS_DEPLOY_.*|(?i:.*_(SERVICE_HOST|SERVICE_PORT.*|PORT_\d+_(TCP|UDP|SCTP).*))", re.DOTALL
)
SECRETS = frozenset({"databases", "database_password", "tokens", "admin_tokens"})
"""Settings that hold a secret, or may: no error shows their values, and their flags take a file."""
LONGEST_SHOWN = 60
"""How many characters of a wrong value an error repeats."""


def variable(field: str) -> str:
    """Return the name of the variable for a field of the settings."""
    return f"TICKETS_{field.upper()}"


def check_names(environment: Mapping[str, str], known: Collection[str], like: str = "TICKETS?_") -> None:
    """Raise SettingsError for the first name that looks like a known one and is none; the error has the nearest one.

    like: the pattern with which such names begin, in any case. Passed over are the names that Kubernetes and Docker
    make for a service, and those of the deployment itself, which begin with TICKETS_DEPLOY_.
    """
    for name, value in sorted(environment.items()):
        is_ours = name in known or not re.match(like, name, re.IGNORECASE)
        if not is_ours and not value.startswith(SERVICE_VALUES) and not _PASSED_OVER.fullmatch(name):
            (nearest,) = get_close_matches(name.upper(), sorted(known), n=1, cutoff=0)
            what = f"{name}: there is no such setting; the nearest one is {nearest}: rename it, or unset it"
            raise SettingsError(what)


class Flag(NamedTuple):
    """A setting on a command line, and where its value stands.

    field: of the settings, the key in the `flags` of `load`. name: `--port`, or `--tokens-file` for a file with a
    secret. variable: that sets the same. wanted: which values it may have. default: None where there is none. source:
    the flag or the variable that sets it. said: the value, or the path of a file with it.
    """

    field: str
    name: str
    variable: str
    wanted: str
    default: object = None
    source: str = ""
    said: str = ""
    is_file: bool = False

    @property
    def is_secret(self) -> bool:
        """Whether no error may show the value."""
        return self.name.endswith("-file")

    def find(self, environment: Mapping[str, str], given: str | None) -> "Flag | None":
        """Return this with the place where it is set, None where it is not. given: what the command line says.

        Raises SettingsError where both the variable and its file are set.
        """
        if given is not None:
            return self._replace(source=self.name, said=given, is_file=self.is_secret)
        sources = [name for name in (self.variable, self.variable + FILE) if name in environment]
        if len(sources) > 1:
            raise SettingsError(f"{' and '.join(sources)} are both set; expected one of them")
        for name in sources:
            return self._replace(source=name, said=environment[name], is_file=name != self.variable)
        return None

    def text(self) -> str:
        """Return the value, out of its file if there is one. Raises SettingsError."""
        said, subject, wanted = self.said, self.source, self.wanted
        try:
            if self.is_file and said.strip():
                subject += ": the file" if self.is_secret else f": the file {said!r}"
                wanted = f"a file with {wanted}"
                said = Path(said).read_text(encoding="utf-8").rstrip("\r\n")
            said.encode()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise SettingsError(f"{subject} cannot be read ({reason}); expected {wanted}") from None
        if not said.strip():
            how = "set and empty" if subject == self.source else "empty"
            raise SettingsError(f"{subject} is {how}; expected {wanted}")
        if said.startswith(SERVICE_VALUES) and not self.is_file:
            hint = "; a Kubernetes Service of that name sets it, and enableServiceLinks: false keeps it away"
            raise self.refusal(said, hint)
        return said if self.field == "database_password" else said.strip()

    def refusal(self, text: str, hint: str = "") -> SettingsError:
        """Return the error that says that a value cannot be used."""
        # an @ may end the password of a URL that was given for another setting
        shown = "cannot be used" if self.is_secret or "@" in text else f"is {text[:LONGEST_SHOWN]!r}"
        return SettingsError(f"{self.source} {shown}; expected {self.wanted}{hint}")


def _number(text: str) -> str:
    """Refuse what Python reads as a number and other programs do not: 1_000, 1e3, nan."""
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):
        raise ValueError("not a number")
    return text


def _tokens(text: str) -> tuple[SecretStr, ...]:
    return tuple(map(SecretStr, text.split()))


def _setting(default: Any, wanted: str, **bounds: Any) -> Any:
    """Return a setting. wanted: which values it may have, and what they mean, for errors and for --help."""
    return Field(default, description=wanted, **bounds)


LOWER = BeforeValidator(str.lower)
Whole = Annotated[int, BeforeValidator(_number)]
Number = Annotated[float, BeforeValidator(_number)]
Port = Annotated[Whole, Field(ge=0, le=65_535)]
Timeout = Annotated[Number, Field(gt=0, le=3600)]
Tokens = Annotated[tuple[SecretStr, ...], BeforeValidator(_tokens)]


class Settings(BaseModel):
    """Everything that can be set. The `repr` holds no secret.

    databases: their addresses, in the order of the offsets; none for the embedded pair.
    """

    model_config = {"frozen": True, "arbitrary_types_allowed": True}

    database_password: SecretStr | None = _setting(None, "the password of the URLs that name a user without one")
    databases: tuple[Address, ...] = _setting(
        (),
        "URLs of the ticket databases in the order of their offsets, separated by white space, like "
        "mysql://user:password@host:port/database; or embedded, for two databases in files of this machine, which "
        "is the default on loopback",
    )
    data_dir: Path = _setting(Path("ticket-data"), "the folder of the embedded pair")
    increment: Annotated[Whole | None, Field(le=65_535)] = _setting(
        None,
        "a whole number, from the number of databases to 65535, the increment that the databases are configured with; "
        "unset: the recorded one",
    )
    host: str = _setting("127.0.0.1", "an address of this machine, where the server listens")
    port: Port = _setting(8000, "a port, 0 to 65535, where the server speaks HTTP")
    redis_port: Port | None = _setting(None, "a port, 0 to 65535, for the Redis protocol; unset: nowhere")
    request_timeout: Timeout = _setting(2.0, "seconds, above 0 and at most 3600; then a request is answered 503")
    database_timeout: Timeout = _setting(0.5, "seconds, above 0 and at most 3600, for one attempt on one database")
    probe_interval: Timeout = _setting(1.0, "seconds, above 0 and at most 5, between two looks at each database", le=5)
    drain_seconds: Number = _setting(5.0, "seconds, 0 to 3600, to serve after SIGTERM while not ready", le=3600)
    reserve_seconds: Number = _setting(0.0, "seconds, 0 to 3600, that the tickets drawn ahead last", le=3600)
    unverified: Annotated[Literal["serve", "refuse"], LOWER] = _setting(
        "serve", "serve, or with two databases or more refuse: whether an unprotected database draws"
    )
    tokens: Tokens = _setting((), "bearer tokens, separated by spaces, that clients may show; unset: they need none")
    admin_tokens: Tokens = _setting((), "bearer tokens, separated by spaces, that may make and bump sequences, too")
    max_connections: Annotated[Whole | None, Field(ge=1, le=1_000_000)] = _setting(
        None, "a whole number, 1 to 1000000, the most client connections; unset: 10000, or as open files allow"
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], LOWER] = _setting(
        "info", "debug, info, warning or error, the least severe level that is logged"
    )
    log_format: Annotated[Literal["text", "json"], LOWER] = _setting(
        "text", "text or json, the form of the log's lines"
    )
    access_log: bool = _setting(False, "true or false, whether each request is logged")

    _token_files: list[Flag] = []

    @field_validator("databases", mode="before")
    @classmethod
    def _parse(cls, value: str, info: ValidationInfo) -> tuple[Address, ...]:
        password: SecretStr | None = info.data.get("database_password")
        return (
            () if value == "embedded" else tuple(parse_list(value, password.get_secret_value() if password else None))
        )

    @field_validator("increment", "unverified")
    @classmethod
    def _fits(cls, value: int | str | None, info: ValidationInfo) -> int | str | None:
        count = len(info.data["databases"])
        if isinstance(value, int) and value < (count or 2):
            raise ValueError("more databases than offsets")
        if value == "refuse" and count == 1:
            raise ValueError("one database is always unprotected")
        return value

    @property
    def is_embedded(self) -> bool:
        """Whether the ticket databases are the embedded pair."""
        return not self.databases

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach what listens on `host`."""
        with suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return self.host == "localhost"

    def with_new_tokens(self) -> "Settings | None":
        """Return these settings with the tokens that their files hold now; None where none come from files.

        Raises SettingsError, as `load` does.
        """
        fresh = {found.field: _tokens(found.text()) for found in self._token_files}
        return self.model_copy(update=fresh) if fresh else None


def flags() -> list[Flag]:
    """Return the flag of each setting, in the order of `ticketd serve --help`."""
    made = []
    for field, about in Settings.model_fields.items():
        name = f"--{field.replace('_', '-')}{'-file' if field in SECRETS else ''}"
        default = None if about.default == () else about.default
        made.append(Flag(field, name, variable(field), str(about.description), default))
    return made


def load(environment: Mapping[str, str], flags_given: Mapping[str, str | None]) -> Settings:
    """Read the settings.

    flags_given: what the command line says, by the names of the fields; None where it says nothing. For a setting of
    `SECRETS` it is the path of a file. Raises SettingsError: one line that names the variable or the flag, what was
    given unless that may be a secret, and what is wanted.
    """
    known = {flag.field: flag for flag in flags()}
    check_names(environment, {flag.variable + ending for flag in known.values() for ending in ("", FILE)})
    found = {name: each for name, flag in known.items() if (each := flag.find(environment, flags_given.get(name)))}
    given = {name: each.text() for name, each in found.items()}
    wanted = known["databases"].wanted
    try:
        settings = Settings.model_validate(given)
    except SettingsError as error:
        raise SettingsError(f"{found['databases'].source}: {error}; expected {wanted}") from error
    except ValidationError as error:
        name = str(error.errors(include_input=False, include_url=False)[0]["loc"][0])
        raise found[name].refusal(given[name]) from None
    if "databases" not in found and not settings.is_local:
        where = f"{found['host'].source} is {settings.host!r}, beyond loopback"
        raise SettingsError(f"{known['databases'].variable} is unset, and {where}; expected {wanted}")
    settings._token_files = [each for each in found.values() if each.is_file and each.field.endswith("tokens")]
    return settings
