"""The settings: read once, from flags, from the environment, and from the files that TICKETS_…_FILE name."""

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from app.databases.address import Address
from app.databases.engines import parse_list
from app.errors import SettingsError
from app.setting_names import FILE, check_names, is_of_a_service, variable

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


class Settings(BaseModel):
    """Everything that can be set. The `repr` holds no secret.

    databases: their addresses, in the order of the offsets; none for the embedded pair.
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

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

    _token_files: dict[str, tuple[str, str]] = PrivateAttr(default_factory=dict)

    @field_validator("databases", mode="before")
    @classmethod
    def _parse(cls, value: str, info: ValidationInfo) -> tuple[Address, ...]:
        if value == EMBEDDED:
            return ()
        password: SecretStr | None = info.data.get("database_password")
        return tuple(parse_list(value, password.get_secret_value() if password is not None else None))

    @field_validator("increment")
    @classmethod
    def _has_room(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and value < (len(info.data["databases"]) or 2):
            raise ValueError("more databases than offsets")
        return value

    @field_validator("unverified")
    @classmethod
    def _can_verify(cls, value: str, info: ValidationInfo) -> str:
        if value == "refuse" and len(info.data["databases"]) == 1:
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

    @property
    def token_files(self) -> list[str]:
        """The paths of the files that hold tokens."""
        return [path for _, path in self._token_files.values()]

    def with_new_tokens(self) -> "Settings":
        """Return these settings with the tokens that their files hold now. Raises SettingsError, as `load` does."""
        fresh = {name: _tokens(_read_file(name, *found)) for name, found in self._token_files.items()}
        return self.model_copy(update=fresh)


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


def flags() -> list[Flag]:
    """Return the flag of each setting, in the order of `ticketd serve --help`."""
    return [
        Flag(name, _flag(name), variable(name), _wanted(name), None if field.default == () else field.default)
        for name, field in Settings.model_fields.items()
    ]


def load(environment: Mapping[str, str], flags: Mapping[str, str | None]) -> Settings:
    """Read the settings.

    flags: what the command line says, by the names of the fields; None where it says nothing. For a setting of
    `SECRETS` it is the path of a file. Raises SettingsError: one line that names the variable or the flag, what was
    given unless that may be a secret, and what is wanted.
    """
    check_names(environment, Settings.model_fields)
    sources: dict[str, str] = {}
    given: dict[str, str] = {}
    token_files: dict[str, tuple[str, str]] = {}
    for name in Settings.model_fields:
        source, text, is_file = _find(name, environment, flags.get(name))
        if text is None:
            continue
        _check_text(name, source, text)
        if is_file and name in ("tokens", "admin_tokens"):
            token_files[name] = source, text
        sources[name], given[name] = source, _read_file(name, source, text) if is_file else text
        if name != "database_password":
            given[name] = given[name].strip()
    try:
        settings = Settings.model_validate(given)
    except SettingsError as error:
        raise SettingsError(f"{sources['databases']}: {error}; expected {_wanted('databases')}") from error
    except ValidationError as error:
        name = str(error.errors(include_input=False, include_url=False)[0]["loc"][0])
        raise SettingsError(f"{sources[name]}{_shown(name, given[name])}; expected {_wanted(name)}") from None
    if "databases" not in given and not settings.is_local:
        where = f"{sources['host']} is {settings.host!r}, beyond loopback"
        raise SettingsError(f"{variable('databases')} is unset, and {where}; expected {_wanted('databases')}")
    settings._token_files = token_files
    return settings


def _find(name: str, environment: Mapping[str, str], flag: str | None) -> tuple[str, str | None, bool]:
    """Return the name of the flag or variable that sets this, what it says, and whether that is the path of a file."""
    by_value = variable(name)
    by_file = by_value + FILE
    if flag is not None:
        return _flag(name), flag, name in SECRETS
    if by_value in environment and by_file in environment:
        raise SettingsError(f"{by_value} and {by_file} are both set; expected one of them")
    if by_file in environment:
        return by_file, environment[by_file], True
    text = environment.get(by_value)
    if text is not None and is_of_a_service(text):
        hint = "a Kubernetes Service of that name sets it, and enableServiceLinks: false keeps it away"
        raise SettingsError(f"{by_value}{_shown(name, text)}; expected {_wanted(name)}; {hint}")
    return by_value, text, False


def _read_file(name: str, source: str, path: str) -> str:
    """Return the text of the file that a variable or flag names."""
    shown = "" if name in SECRETS else f" {path!r}"
    try:
        text = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise SettingsError(
            f"{source}: the file{shown} cannot be read ({reason}); expected a file with {_wanted(name)}"
        ) from error
    if not text.strip():
        raise SettingsError(f"{source}: the file{shown} is empty; expected a file with {_wanted(name)}")
    return text


def _check_text(name: str, source: str, text: str) -> None:
    """Raise SettingsError where a value is empty, or has bytes that are not UTF-8."""
    if not text.strip():
        raise SettingsError(f"{source} is set and empty; expected {_wanted(name)}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise SettingsError(f"{source} is not UTF-8; expected {_wanted(name)}") from None


def _shown(name: str, text: str) -> str:
    # an @ may end the password of a URL that was given for another setting
    return " cannot be used" if name in SECRETS or "@" in text else f" is {text[:LONGEST_SHOWN]!r}"


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}{'-file' if name in SECRETS else ''}"


def _wanted(name: str) -> str:
    return str(Settings.model_fields[name].description)
