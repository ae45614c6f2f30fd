"""The settings: read once, from flags, from the environment, and from the files that TICKETS_…_FILE name."""

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, Field, SecretStr, ValidationError, ValidationInfo, field_validator

from app.databases.address import Address
from app.databases.engines import parse_list
from app.errors import SettingsError
from app.setting_names import FILE, SERVICE_VALUES, check_names, variable

EMBEDDED = "embedded"
"""The value of TICKETS_DATABASES that names the embedded pair."""
SECRETS = frozenset({"databases", "database_password", "tokens", "admin_tokens"})
"""Settings that hold a secret, or may: no error shows their values, and their flags take a file."""
LARGEST_INCREMENT = 65_535
"""MySQL allows no larger auto_increment_increment."""
LONGEST_SHOWN = 60
"""How many characters of a wrong value an error repeats."""


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


Whole = Annotated[int, BeforeValidator(_number)]
Number = Annotated[float, BeforeValidator(_number)]
Port = Annotated[Whole, Field(ge=0, le=65_535)]
Timeout = Annotated[Number, Field(gt=0, le=3600)]
TIMEOUT = "seconds, above 0 and at most 3600"
Tokens = Annotated[tuple[SecretStr, ...], BeforeValidator(_tokens)]


class Flag(NamedTuple):
    """A setting on a command line.

    field: of the settings, the key in the `flags` of `load`. name: `--port`, or `--tokens-file` for a file with a
    secret. variable: that sets the same. wanted: which values it may have. default: None where there is none.
    """

    field: str
    name: str
    variable: str
    wanted: str
    default: object


class _Found(NamedTuple):
    """Where a setting was found. source: its flag or variable. said: the value, or the path of a file with it."""

    flag: Flag
    source: str
    said: str
    is_file: bool

    def text(self) -> str:
        """Return the value, out of its file if there is one. Raises SettingsError."""
        subject, wanted, said = self.source, self.flag.wanted, self.said
        if not said.strip():
            raise SettingsError(f"{subject} is set and empty; expected {wanted}")
        if said.startswith(SERVICE_VALUES) and not self.is_file:
            hint = "a Kubernetes Service of that name sets it, and enableServiceLinks: false keeps it away"
            raise self.refusal(said, f"; {hint}")
        if self.is_file:
            subject += ": the file" if self.flag.field in SECRETS else f": the file {said!r}"
            wanted = f"a file with {wanted}"
        try:
            text = Path(said).read_text(encoding="utf-8").rstrip("\r\n") if self.is_file else said
            text.encode()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise SettingsError(f"{subject} cannot be read ({reason}); expected {wanted}") from None
        if not text.strip():
            raise SettingsError(f"{subject} is empty; expected {wanted}")
        return text if self.flag.field == "database_password" else text.strip()

    def refusal(self, text: str, hint: str = "") -> SettingsError:
        """Return the error that says that a value cannot be used."""
        # an @ may end the password of a URL that was given for another setting
        is_secret = self.flag.field in SECRETS or "@" in text
        shown = "cannot be used" if is_secret else f"is {text[:LONGEST_SHOWN]!r}"
        return SettingsError(f"{self.source} {shown}; expected {self.flag.wanted}{hint}")


class Settings(BaseModel):
    """Everything that can be set. The `repr` holds no secret.

    databases: their addresses, in the order of the offsets; none for the embedded pair.
    """

    model_config = {"frozen": True, "arbitrary_types_allowed": True}

    database_password: SecretStr | None = _setting(None, "the password of the URLs that name a user without one")
    databases: tuple[Address, ...] = _setting(
        (),
        "URLs of the ticket databases in the order of their offsets, separated by white space, like "
        f"mysql://user:password@host:port/database; or {EMBEDDED}, for two databases in files of this machine, which "
        "is the default on loopback",
    )
    data_dir: Path = _setting(Path("ticket-data"), "the folder of the embedded pair")
    increment: Whole | None = _setting(
        None,
        f"a whole number, from the number of databases to {LARGEST_INCREMENT}, the increment that the databases are "
        "configured with; unset: the recorded one",
        le=LARGEST_INCREMENT,
    )
    host: str = _setting("127.0.0.1", "an address of this machine, where the server listens")
    port: Port = _setting(8000, "a port, 0 to 65535, where the server speaks HTTP")
    redis_port: Port | None = _setting(
        None, "a port, 0 to 65535, where the server speaks the Redis protocol; unset: nowhere"
    )
    request_timeout: Timeout = _setting(2.0, f"{TIMEOUT}, after which a request is answered 503")
    database_timeout: Timeout = _setting(0.5, f"{TIMEOUT}, for one attempt on one database")
    probe_interval: Number = _setting(
        1.0, "seconds, above 0 and at most 5, between two looks at each database", gt=0, le=5
    )
    drain_seconds: Number = _setting(
        5.0, "seconds, 0 to 3600, for which the server is not ready but still serves after SIGTERM", le=3600
    )
    reserve_seconds: Number = _setting(
        0.0, "seconds, 0 to 3600, that the tickets drawn ahead of a sequence last at its present rate", le=3600
    )
    unverified: Annotated[Literal["serve", "refuse"], BeforeValidator(str.lower)] = _setting(
        "serve", "serve, or with two databases or more refuse: whether an unprotected database draws"
    )
    tokens: Tokens = _setting((), "bearer tokens, separated by spaces, that clients may show; unset: they need none")
    admin_tokens: Tokens = _setting((), "bearer tokens, separated by spaces, that may make and bump sequences, too")
    max_connections: Whole | None = _setting(
        None,
        "a whole number, 1 to 1000000, the most client connections; unset: 10000, or what the limit on open files "
        "allows",
        ge=1,
        le=1_000_000,
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(str.lower)] = _setting(
        "info", "debug, info, warning or error, the least severe level that is logged"
    )
    log_format: Annotated[Literal["text", "json"], BeforeValidator(str.lower)] = _setting(
        "text", "text or json, the form of the log's lines"
    )
    access_log: bool = _setting(False, "true or false, whether each request is logged")

    _token_files: list[_Found] = []

    @field_validator("databases", mode="before")
    @classmethod
    def _parse(cls, value: str, info: ValidationInfo) -> tuple[Address, ...]:
        if value == EMBEDDED:
            return ()
        password: SecretStr | None = info.data.get("database_password")
        return tuple(parse_list(value, password.get_secret_value() if password is not None else None))

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
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def with_new_tokens(self) -> "Settings | None":
        """Return these settings with the tokens that their files hold now; None where none come from files.

        Raises SettingsError, as `load` does.
        """
        fresh = {found.flag.field: _tokens(found.text()) for found in self._token_files}
        return self.model_copy(update=fresh) if fresh else None


def flags() -> list[Flag]:
    """Return the flag of each setting, in the order of `ticketd serve --help`."""
    return [
        Flag(
            name,
            f"--{name.replace('_', '-')}{'-file' if name in SECRETS else ''}",
            variable(name),
            str(field.description),
            None if field.default == () else field.default,
        )
        for name, field in Settings.model_fields.items()
    ]


def load(environment: Mapping[str, str], flags_given: Mapping[str, str | None]) -> Settings:
    """Read the settings.

    flags_given: what the command line says, by the names of the fields; None where it says nothing. For a setting of
    `SECRETS` it is the path of a file. Raises SettingsError: one line that names the variable or the flag, what was
    given unless that may be a secret, and what is wanted.
    """
    known = {flag.field: flag for flag in flags()}
    check_names(environment, {flag.variable + ending for flag in known.values() for ending in ("", FILE)})
    found = {name: each for name, flag in known.items() if (each := _find(flag, environment, flags_given.get(name)))}
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
    settings._token_files = [each for each in found.values() if each.is_file and each.flag.field.endswith("tokens")]
    return settings


def _find(flag: Flag, environment: Mapping[str, str], given: str | None) -> _Found | None:
    """Return where a setting stands. given: what the command line says."""
    if given is not None:
        return _Found(flag, flag.name, given, flag.field in SECRETS)
    sources = [name for name in (flag.variable, flag.variable + FILE) if name in environment]
    if len(sources) > 1:
        raise SettingsError(f"{' and '.join(sources)} are both set; expected one of them")
    return next((_Found(flag, name, environment[name], name != flag.variable) for name in sources), None)
