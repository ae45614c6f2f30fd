"""The settings: read once, from the environment, from the files that TICKETS_…_FILE name, and from flags."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, ValidationInfo, field_validator

from app.common.errors import SettingsError
from app.common.value_files import read_value
from app.databases import engines
from app.databases.mysql.url import DatabaseURL
from app.databases.protocol import LARGEST_INCREMENT

PREFIX = "TICKETS_"
OTHERS = frozenset(
    {
        "TICKETS_TEST_MYSQLD",
        "TICKETS_TEST_DATABASES",
        "TICKETS_TEST_MYSQL_IMAGE",
        "TICKETS_TEST_LONG",
        "TICKETS_BENCH_MYSQLD",
    }
)
"""Variables that begin alike and belong to the tests and the benchmark."""

Seconds = Annotated[float, Field(gt=0, le=3600)]
SECONDS = "seconds, above 0 and at most 3600"


def _field(default: Any, expected: str, meaning: str, **more: Any) -> Any:
    """A setting: its valid values, for errors, and its meaning, for --help."""
    return Field(default, description=meaning, json_schema_extra={"expected": expected}, **more)


_SECONDS = ("request_timeout", "database_timeout", "probe_interval", "drain_seconds", "reserve_seconds")


def _words(text: str) -> tuple[str, ...]:
    """The words of a list. An empty list is an error: without tokens, anybody may do anything."""
    words = tuple(text.split())
    if not words:
        raise ValueError("empty")
    return words


class Settings(BaseModel):
    """Everything that can be set. Frozen; its `repr` holds no secret."""

    model_config = ConfigDict(frozen=True)

    databases: tuple[DatabaseURL, ...] = _field(
        (),
        f"URLs like {engines.URL_FORM}, in offset order",
        f"URLs of the ticket databases in offset order, {engines.URL_FORM}; unset: two embedded ones",
    )
    database_password: SecretStr | None = _field(None, "a password", "for URLs that name a user without a password")
    data_dir: Path = _field(Path("ticket-data"), "a folder", "folder of the embedded pair")
    increment: int | None = _field(
        None,
        f"a whole number from the number of databases to {LARGEST_INCREMENT}",
        "auto_increment_increment of the databases",
        ge=1,
    )
    host: str = _field("127.0.0.1", "an address", "address to listen on", min_length=1)
    port: int = _field(8000, "a port, 0 to 65535", "port to listen on", ge=0, le=65535)
    request_timeout: Seconds = _field(2.0, SECONDS, "seconds after which a request is answered 503")
    database_timeout: Seconds = _field(0.5, SECONDS, "seconds for one attempt on one database")
    probe_interval: Seconds = _field(1.0, SECONDS, "seconds between two probes of a database")
    drain_seconds: float = _field(
        5.0, "seconds, 0 to 3600", "after SIGTERM: seconds for which it is not ready but still serves", ge=0, le=3600
    )
    reserve_seconds: float = _field(
        0.0,
        "seconds, 0 to 3600",
        "how long the tickets drawn ahead of each sequence would last; 0: none are drawn ahead",
        ge=0,
        le=3600,
    )
    unverified: Literal["serve", "refuse"] = _field(
        "serve", "serve or refuse", "whether a database may draw while no other can be asked for its high-water marks"
    )
    redis_port: int | None = _field(
        None, "a port, 0 to 65535", "port to speak the Redis protocol on; unset: nowhere", ge=0, le=65535
    )
    tokens: tuple[SecretStr, ...] = _field((), "tokens separated by spaces", "bearer tokens; unset: no authentication")
    admin_tokens: tuple[SecretStr, ...] = _field(
        (), "tokens separated by spaces", "bearer tokens that may do everything"
    )
    max_connections: int | None = _field(
        None,
        "a whole number, 1 to 1000000",
        "client connections, 10000 unless the limit on open files is lower; 32 more for health checks",
        ge=1,
        le=1_000_000,
    )
    log_level: Literal["debug", "info", "warning", "error"] = _field(
        "info", "debug, info, warning or error", "the least severe level that is logged"
    )
    log_format: Literal["text", "json"] = _field("text", "text or json", "one line per event: key=value or JSON")
    access_log: bool = _field(False, "true or false", "log every request")

    @field_validator("database_password", mode="before")
    @classmethod
    def _strip(cls, value: Any) -> Any:
        return value.rstrip("\r\n") if isinstance(value, str) else value

    @field_validator("databases", mode="before")
    @classmethod
    def _read_urls(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return tuple(engines.read_url(text) for text in _words(value.replace(",", " ")))

    @field_validator("tokens", "admin_tokens", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return _words(value) if isinstance(value, str) else value

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
    def presumed_increment(self) -> int:
        """The increment before the ring record has been read: as set, or the number of databases."""
        return self.increment or len(self.databases) or 2

    @property
    def addresses(self) -> tuple[engines.Address, ...]:
        """The ticket databases in offset order: the URLs, or the files of the embedded pair."""
        return engines.embedded_pair(self.data_dir) if self.embedded else self.urls

    @property
    def urls(self) -> tuple[DatabaseURL, ...]:
        """The databases, each with its password."""
        if self.database_password is None:
            return self.databases
        password = self.database_password.get_secret_value()
        return tuple(replace(url, password=password) if url.password is None else url for url in self.databases)


class Flag(BaseModel):
    """A value from the command line, and the flag that gave it."""

    model_config = ConfigDict(frozen=True)
    flag: str
    value: str


SECRETS = frozenset({"databases", "database_password", "tokens", "admin_tokens"})
"""Settings that hold a secret, or may: never shown, and on the command line only as a file."""


def files_of(
    names: Iterable[str], environment: Mapping[str, str], flags: Mapping[str, Flag] | None = None
) -> list[str]:
    """The files that these settings, which hold secrets, are read from."""
    flagged = [flags[name].value for name in names if flags and name in flags]
    variables = [PREFIX + name.upper() + "_FILE" for name in names if not (flags and name in flags)]
    return flagged + [environment[variable] for variable in variables if environment.get(variable)]


def load(environment: Mapping[str, str], flags: Mapping[str, Flag] | None = None) -> Settings:
    """The settings from this environment; a flag wins over the environment.

    Raises SettingsError: one line that names the variable, what was given (never a secret) and what is required.
    """
    given: dict[str, str] = {}
    named: dict[str, str] = {}
    for name in Settings.model_fields:
        variable = PREFIX + name.upper()
        flag = (flags or {}).get(name)
        if flag is not None:
            named[name] = flag.flag
            given[name] = read_value(flag.value, flag.flag) if name in SECRETS else flag.value.strip()
            continue
        direct, file = environment.get(variable) or None, environment.get(variable + "_FILE") or None
        if direct is not None and file is not None:
            raise SettingsError(f"{variable} and {variable}_FILE are both set: set one of them")
        named[name] = variable if file is None else variable + "_FILE"
        value = direct if file is None else read_value(file, variable + "_FILE")
        if value:
            given[name] = value if name == "database_password" else value.strip()
    try:
        settings = Settings.model_validate(given)
        _ = [url.ssl_context() for url in settings.urls]
    except SettingsError as error:
        raise SettingsError(f"{named['databases']}: {error}; expected {_expected('databases')}") from None
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        shown = "a secret" if name in SECRETS else repr(given.get(name, ""))
        hint = "; a Kubernetes Service called tickets sets it: enableServiceLinks: false" if "tcp://" in shown else ""
        raise SettingsError(f"{named[name]}: {shown} cannot be used; expected {_expected(name)}{hint}") from None
    if settings.unverified == "refuse" and len(settings.databases) == 1:
        raise SettingsError(
            f"{named['unverified']}: 'refuse' needs another database to ask; expected two databases or serve"
        )
    return settings


def unknown_names(environment: Mapping[str, str]) -> list[str]:
    """Variables with our prefix that are not settings; they are probably misspelt."""
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    known |= {name + "_FILE" for name in known} | OTHERS
    return sorted(name for name in environment if name.startswith(PREFIX) and name not in known)


def _expected(name: str) -> str:
    extra = Settings.model_fields[name].json_schema_extra
    return str(extra["expected"]) if isinstance(extra, dict) else ""
