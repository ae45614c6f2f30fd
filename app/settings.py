"""The settings: read once, from the environment, from the files that TICKETS_…_FILE name, and from flags."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, ValidationInfo, field_validator

from app import setting_names
from app.common.addresses import is_loopback
from app.common.errors import SettingsError
from app.common.value_files import read_value
from app.databases import engines
from app.databases.engine import Address
from app.databases.protocol import LARGEST_INCREMENT
from app.setting_names import FILE, PREFIX

EMBEDDED = "embedded"
"""The value of TICKETS_DATABASES that names the embedded pair."""
_SEPARATOR = re.compile(r"\s*,\s*(?=[A-Za-z][A-Za-z0-9+.-]*://)|\s+")
"""Between two URLs. Any other comma is part of a URL."""

Seconds = Annotated[float, Field(gt=0, le=3600)]
SECONDS = "seconds, above 0 and at most 3600"


def _field(default: Any, expected: str, meaning: str, **more: Any) -> Any:
    """A setting: its valid values, for errors, and its meaning, for --help."""
    return Field(default, description=meaning, json_schema_extra={"expected": expected}, **more)


_SECONDS = ("request_timeout", "database_timeout", "probe_interval", "drain_seconds", "reserve_seconds")


class Settings(BaseModel):
    """Everything that can be set. Frozen; its `repr` holds no secret."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    databases: tuple[Address, ...] = _field(
        (),
        f"URLs like {engines.URL_FORM}, in offset order, with the password percent-encoded or in "
        f"{PREFIX}DATABASE_PASSWORD; or {EMBEDDED}",
        f"URLs of the ticket databases in offset order, each like {engines.URL_FORM}; or {EMBEDDED}, for two databases "
        "in files of this machine, which is the default on loopback",
    )
    database_password: SecretStr | None = _field(
        None, "a password", "password of the URLs that name a user without one"
    )
    data_dir: Path = _field(Path("ticket-data"), "a folder", "folder of the embedded pair")
    increment: int | None = _field(
        None,
        f"a whole number from the number of databases to {LARGEST_INCREMENT}",
        f"increment that the databases are configured with ({engines.INCREMENT_SETTING})",
        ge=1,
    )
    host: str = _field("127.0.0.1", "an address", "address to listen on", min_length=1)
    port: int = _field(8000, "a port, 0 to 65535", "port to listen on", ge=0, le=65535)
    request_timeout: Seconds = _field(2.0, SECONDS, "seconds after which a request is answered 503")
    database_timeout: Seconds = _field(0.5, SECONDS, "seconds for one attempt on one database")
    probe_interval: Seconds = _field(1.0, SECONDS, "seconds between two probes of a database")
    drain_seconds: float = _field(
        5.0,
        "seconds, 0 to 3600",
        "seconds after SIGTERM for which the server is not ready but still serves",
        ge=0,
        le=3600,
    )
    reserve_seconds: float = _field(
        0.0,
        "seconds, 0 to 3600",
        "seconds that the tickets drawn ahead of a sequence last at its present rate; 0: the server draws none ahead",
        ge=0,
        le=3600,
    )
    unverified: Literal["serve", "refuse"] = _field(
        "serve", "serve or refuse", "whether a database may draw while no other can be asked for its high-water marks"
    )
    redis_port: int | None = _field(
        None, "a port, 0 to 65535", "port for the Redis protocol; unset: the server does not speak it", ge=0, le=65535
    )
    tokens: tuple[SecretStr, ...] = _field(
        (), "tokens separated by spaces", "bearer tokens that clients may show; unset: no authentication"
    )
    admin_tokens: tuple[SecretStr, ...] = _field(
        (), "tokens separated by spaces", "bearer tokens that may create and bump sequences, too"
    )
    max_connections: int | None = _field(
        None,
        "a whole number, 1 to 1000000",
        "most client connections, 10000 unless the limit on open files is lower; 32 more for health checks",
        ge=1,
        le=1_000_000,
    )
    log_level: Literal["debug", "info", "warning", "error"] = _field(
        "info", "debug, info, warning or error", "least severe level that the server logs"
    )
    log_format: Literal["text", "json"] = _field(
        "text", "text or json", "form of the log, one line per event: key=value or JSON"
    )
    access_log: bool = _field(False, "true or false", "whether the server logs every request")

    @field_validator("database_password", mode="before")
    @classmethod
    def _strip(cls, value: Any) -> Any:
        return value.rstrip("\r\n") if isinstance(value, str) else value

    @field_validator("databases", mode="before")
    @classmethod
    def _read_urls(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return () if value == EMBEDDED else tuple(engines.read_url(text) for text in _SEPARATOR.split(value))

    @field_validator("tokens", "admin_tokens", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return tuple(value.split()) if isinstance(value, str) else value

    @field_validator("port", "redis_port", "increment", "max_connections", *_SECONDS, mode="before")
    @classmethod
    def _digits(cls, value: Any) -> Any:
        if isinstance(value, str) and "_" in value:
            raise ValueError("Python's own way to write a number")
        return value

    @field_validator("log_level", "unverified", "log_format", mode="before")
    @classmethod
    def _lower(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    @field_validator("increment")
    @classmethod
    def _at_least_the_databases(cls, value: int | None, info: ValidationInfo) -> int | None:
        count = len(info.data.get("databases") or (0, 0))
        if value is not None and not count <= value <= LARGEST_INCREMENT:
            raise ValueError("out of range")
        return value

    @property
    def embedded(self) -> bool:
        """Whether the ticket databases are the embedded pair."""
        return not self.databases

    @property
    def folder(self) -> Path:
        """The whole path of the embedded pair's folder."""
        return self.data_dir.absolute()

    @property
    def presumed_increment(self) -> int:
        """The increment before the ring record has been read: as set, or the number of databases."""
        return self.increment or len(self.databases) or 2

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The ticket databases in offset order: the URLs, or the files of the embedded pair."""
        return engines.embedded_pair(self.folder) if self.embedded else self.urls

    @property
    def urls(self) -> tuple[Address, ...]:
        """The databases, each with its password."""
        if self.database_password is None:
            return self.databases
        password = self.database_password.get_secret_value()
        return tuple(url.with_password(password) for url in self.databases)


class Flag(BaseModel):
    """A value from the command line, and the flag that gave it."""

    model_config = ConfigDict(frozen=True)
    flag: str
    value: str


SECRETS = frozenset({"databases", "database_password", "tokens", "admin_tokens"})
"""Settings that hold a secret, or may: never shown, and on the command line only as a file."""


VARIABLES = tuple(PREFIX + name.upper() for name in Settings.model_fields)
"""The variable of each setting; with _FILE, it names the file that the value is in."""


def files_of(
    names: Iterable[str], environment: Mapping[str, str], flags: Mapping[str, Flag] | None = None
) -> list[str]:
    """The files that these settings, which hold secrets, are read from."""
    flagged = [flags[name].value for name in names if flags and name in flags]
    variables = [PREFIX + name.upper() + FILE for name in names if not (flags and name in flags)]
    return flagged + [environment[variable] for variable in variables if environment.get(variable)]


def unknown_names(environment: Mapping[str, str]) -> list[str]:
    """Variables that look like settings and are none, to be warned of. One that `load` stops for is not misspelt by
    a single letter."""
    return setting_names.unknown_names(environment, VARIABLES)


def load(environment: Mapping[str, str], flags: Mapping[str, Flag] | None = None) -> Settings:
    """The settings from this environment; a flag wins over the environment.

    Raises SettingsError: one line that names the variable, what was given (never a secret) and what is required.
    """
    misspelt = setting_names.misspelt_name(environment, VARIABLES)
    if misspelt is not None:
        name, meant = misspelt
        raise SettingsError(f"{name}: there is no such setting; rename it to {meant}, or unset it")
    sources = {name: _source(name, environment, flags or {}) for name in Settings.model_fields}
    given = {name: text for name, source in sources.items() if (text := _text(name, source)) is not None}
    try:
        settings = Settings.model_validate(given)
        for url in settings.urls:
            url.check()
    except SettingsError as error:
        raise SettingsError(f"{sources['databases'].name}: {error}; expected {_expected('databases')}") from None
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        raise _unusable(name, sources[name], given.get(name, "")) from None
    _check_together(settings, sources, environment)
    return settings


class _Source(NamedTuple):
    """Where a setting's value comes from. `name`: of the flag or variable, with _FILE where it names a file. `value`:
    what that says, None where it is not there."""

    name: str
    value: str | None = None
    is_file: bool = False


def _source(name: str, environment: Mapping[str, str], flags: Mapping[str, Flag]) -> _Source:
    """The flag or variable that sets this setting. Raises SettingsError where both variables are there."""
    if name in flags:
        return _Source(flags[name].flag, flags[name].value, name in SECRETS)
    variable = PREFIX + name.upper()
    if variable in environment and variable + FILE in environment:
        raise SettingsError(f"{variable} and {variable}{FILE} are both set: set one of them")
    if variable + FILE in environment:
        return _Source(variable + FILE, environment[variable + FILE], True)
    return _Source(variable, environment.get(variable))


def _text(name: str, source: _Source) -> str | None:
    """What was given for a setting, None where nothing was. Raises SettingsError where it is empty: a value that was
    lost on its way must not leave the default in force."""
    if source.value is None:
        return None
    if not source.value.strip():
        expected = "the path of a file with the value" if source.is_file else _expected(name)
        raise SettingsError(f"{source.name}: '' cannot be used; expected {expected}; it is set and empty")
    text = read_value(source.value, source.name) if source.is_file else source.value
    return text if name == "database_password" else text.strip()


def _unusable(name: str, source: _Source, text: str) -> SettingsError:
    shown = "a secret" if name in SECRETS else repr(text)
    of_a_service = setting_names.is_service_address(text)
    hint = "; a Kubernetes Service of that name sets it: enableServiceLinks: false" if of_a_service else ""
    return SettingsError(f"{source.name}: {shown} cannot be used; expected {_expected(name)}{hint}")


def _check_together(settings: Settings, sources: Mapping[str, _Source], environment: Mapping[str, str]) -> None:
    """Raises SettingsError where settings that can be used do not go together."""
    if settings.unverified == "refuse" and len(settings.databases) == 1:
        raise SettingsError(
            f"{sources['unverified'].name}: 'refuse' needs another database to ask; expected two databases or serve"
        )
    if sources["databases"].value is None and not is_loopback(settings.host):
        unknown = unknown_names(environment)
        also = f"; {unknown[0]}, which is set, is not a setting" if unknown else ""
        raise SettingsError(
            f"{sources['databases'].name}: it is unset, and {sources['host'].name} {settings.host!r} is beyond "
            f"loopback; expected {_expected('databases')}{also}"
        )
    if settings.embedded:
        reason = engines.why_unusable(settings.folder)
        if reason is not None:
            raise SettingsError(
                f"{sources['data_dir'].name}: the folder {settings.folder} cannot be used ({reason}); "
                "expected a folder that this process may write to"
            )


def _expected(name: str) -> str:
    extra = Settings.model_fields[name].json_schema_extra
    return str(extra["expected"]) if isinstance(extra, dict) else ""
