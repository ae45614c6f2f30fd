"""The settings: read once, from the environment and from the files that TICKETS_…_FILE name; flags come first."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, ValidationInfo, field_validator

from next.databases.address import Address
from next.databases.engines import parse_list
from next.errors import SettingsError

PREFIX, FILE = "TICKETS_", "_FILE"
LARGEST_INCREMENT = 65_535
"""MySQL allows no larger auto_increment_increment."""
LONGEST_SHOWN = 60
"""How many characters of a wrong value an error repeats."""
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_SECRETS = ("databases", "database_password")


def _setting(default: Any, expected: str, **bounds: Any) -> Any:
    """Return a setting. expected: which values it may have, for errors and for --help."""
    return Field(default, description=expected, **bounds)


Seconds = Annotated[float, Field(gt=0, le=3600)]
SECONDS = "seconds, above 0 and at most 3600"


class Settings(BaseModel):
    """Everything that can be set. The `repr` holds no secret."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    database_password: SecretStr | None = _setting(None, "a password", min_length=1)
    databases: tuple[Address, ...] = _setting((), "URLs in the order of their offsets, separated by white space")
    increment: int | None = _setting(
        None, f"a whole number, from the number of databases to {LARGEST_INCREMENT}", ge=1, le=LARGEST_INCREMENT
    )
    request_timeout: Seconds = _setting(2.0, SECONDS)
    database_timeout: Seconds = _setting(0.5, SECONDS)
    probe_interval: float = _setting(1.0, "seconds, above 0 and at most 5", gt=0, le=5)
    unverified: Literal["serve", "refuse"] = _setting("serve", "serve, or with two databases or more refuse")

    @field_validator("increment", "request_timeout", "database_timeout", "probe_interval", mode="before")
    @classmethod
    def _digits(cls, value: str) -> str:
        """Refuse what Python reads as a number and other programs do not: 1_000, 1e3, nan."""
        if not _NUMBER.fullmatch(value):
            raise ValueError("not a number")
        return value

    @field_validator("databases", mode="before")
    @classmethod
    def _parse(cls, value: str, info: ValidationInfo) -> tuple[Address, ...]:
        password: SecretStr | None = info.data.get("database_password")
        return tuple(parse_list(value, password.get_secret_value() if password is not None else None))

    @field_validator("increment")
    @classmethod
    def _has_room(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and value < len(info.data.get("databases", ())):
            raise ValueError("more databases than offsets")
        return value

    @field_validator("unverified")
    @classmethod
    def _can_verify(cls, value: str, info: ValidationInfo) -> str:
        if value == "refuse" and len(info.data.get("databases", (None, None))) == 1:
            raise ValueError("one database is always unprotected")
        return value


def variable(name: str) -> str:
    """Return the name of a setting's variable."""
    return PREFIX + name.upper()


def load(environment: Mapping[str, str], flags: Mapping[str, str | None]) -> Settings:
    """Read the settings.

    flags: what the command line says, by the names of the fields; None where it says nothing. Raises SettingsError: one
    line that names the variable or the flag, what was given unless that may be a secret, and what is wanted.
    """
    sources: dict[str, str] = {}
    given: dict[str, str] = {}
    for name in Settings.model_fields:
        flag = flags.get(name)
        found = (f"--{name.replace('_', '-')}", flag) if flag is not None else _read(environment, variable(name))
        if found is not None:
            sources[name], given[name] = found
            _check_text(*found)
    if "databases" not in given:
        raise SettingsError(f"{variable('databases')} is not set; expected {_expected('databases')}")
    try:
        return Settings.model_validate(given)
    except SettingsError as error:
        raise SettingsError(f"{sources['databases']}: {error}") from error
    except ValidationError as error:
        name = str(error.errors(include_input=False, include_url=False)[0]["loc"][0])
        shown = "" if name in _SECRETS else f" is {given[name][:LONGEST_SHOWN]!r}"
        raise SettingsError(f"{sources[name]}{shown}; expected {_expected(name)}") from None


def _expected(name: str) -> str:
    return str(Settings.model_fields[name].description)


def _read(environment: Mapping[str, str], name: str) -> tuple[str, str] | None:
    """Return the variable that sets this, and the value; None where neither variable is set."""
    by_file = name + FILE
    if name in environment and by_file in environment:
        raise SettingsError(f"{name} and {by_file} are both set; expected one of them")
    if by_file not in environment:
        return (name, environment[name]) if name in environment else None
    try:
        return by_file, Path(environment[by_file]).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise SettingsError(f"{by_file}: the file cannot be read ({reason}); expected a file with the value") from error


def _check_text(source: str, value: str) -> None:
    """Raise SettingsError where a value is empty, or has bytes that are not UTF-8."""
    if not value.strip():
        raise SettingsError(f"{source} is set and empty; expected a value, or unset it")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise SettingsError(f"{source} is not UTF-8; expected text") from None
