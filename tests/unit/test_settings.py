"""The settings: every variable, its file and its flag, what cannot be used, and that no secret is ever shown."""

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from app.commands.cli import build_parser
from app.common.errors import SettingsError
from app.databases.mysql.line.url import DatabaseURL, SslMode
from app.settings import Flag, Settings, load

SECRET = "s3cret-never-shown"
URLS = f"mysql://tickets:{SECRET}@db1/tickets, mysql://tickets:{SECRET}@db2:3307/tickets?ssl-mode=required"

VARIABLES: list[tuple[str, str, Any]] = [
    ("TICKETS_DATA_DIR", "/srv/tickets", Path("/srv/tickets")),
    ("TICKETS_INCREMENT", "10", 10),
    ("TICKETS_HOST", "127.0.0.2", "127.0.0.2"),
    ("TICKETS_PORT", "8080", 8080),
    ("TICKETS_REQUEST_TIMEOUT", "3", 3.0),
    ("TICKETS_DATABASE_TIMEOUT", "0.25", 0.25),
    ("TICKETS_PROBE_INTERVAL", "2.5", 2.5),
    ("TICKETS_DRAIN_SECONDS", "0", 0.0),
    ("TICKETS_RESERVE_SECONDS", "2.5", 2.5),
    ("TICKETS_UNVERIFIED", "Refuse", "refuse"),
    ("TICKETS_LOG_LEVEL", "DEBUG", "debug"),
    ("TICKETS_LOG_FORMAT", "json", "json"),
    ("TICKETS_ACCESS_LOG", "true", True),
]


VARIABLE_NAMES = [
    *("TICKETS_DATABASES", "TICKETS_DATABASE_PASSWORD", "TICKETS_TOKENS", "TICKETS_ADMIN_TOKENS"),
    *("TICKETS_REDIS_PORT", "TICKETS_MAX_CONNECTIONS"),
    *(variable for variable, _, _ in VARIABLES),
]


def secrets_of(settings: Settings, name: str) -> list[str]:
    return [each.get_secret_value() for each in getattr(settings, name)]


def field(variable: str) -> str:
    return variable.removeprefix("TICKETS_").lower()


def urls_of(settings: Settings) -> list[DatabaseURL]:
    """The databases, which are all of MySQL here."""
    return [url for url in settings.urls if isinstance(url, DatabaseURL)]


def error_of(environment: dict[str, str], flags: dict[str, Flag] | None = None) -> str:
    """The error's line; it never holds the secret."""
    with pytest.raises(SettingsError) as caught:
        load(environment, flags)
    line = str(caught.value)
    assert "\n" not in line
    assert SECRET not in line
    return line


def test_nothing_set_is_the_embedded_pair_with_the_defaults() -> None:
    settings = load({})
    assert settings.embedded
    assert settings.presumed_increment == 2
    assert (settings.host, settings.port, str(settings.data_dir)) == ("127.0.0.1", 8000, "ticket-data")
    seconds = (settings.request_timeout, settings.database_timeout, settings.probe_interval, settings.drain_seconds)
    assert seconds == (2.0, 0.5, 1.0, 5.0)
    assert (settings.unverified, settings.tokens, settings.admin_tokens) == ("serve", (), ())


@pytest.mark.parametrize(("variable", "text", "value"), VARIABLES)
def test_a_variable_its_file_and_its_flag(variable: str, text: str, value: Any, tmp_path: Path) -> None:
    file = tmp_path / "value"
    file.write_text(f"{text}\n")
    assert getattr(load({variable: text}), field(variable)) == value
    assert getattr(load({f"{variable}_FILE": str(file)}), field(variable)) == value
    flag = Flag(flag="--" + field(variable).replace("_", "-"), value=text)
    assert getattr(load({variable: "nonsense"}, {field(variable): flag}), field(variable)) == value


def test_databases_from_the_variable_a_file_and_a_flag(tmp_path: Path) -> None:
    file = tmp_path / "urls"
    file.write_text(URLS.replace(", ", "\n") + "\n")
    flag = {"databases": Flag(flag="--databases-file", value=str(file))}
    for settings in (load({"TICKETS_DATABASES": URLS}), load({"TICKETS_DATABASES_FILE": str(file)}), load({}, flag)):
        assert [url.name for url in settings.urls] == ["db1:3306", "db2:3307"]
        assert [url.password for url in urls_of(settings)] == [SECRET, SECRET]
        assert [url.ssl_mode for url in urls_of(settings)] == [SslMode.PREFERRED, SslMode.REQUIRED]
        assert settings.presumed_increment == 2


def test_the_password_is_for_urls_without_one_and_keeps_its_spaces(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f" {SECRET} \r\n")
    urls = "mysql://one@db1/tickets mysql://two:own@db2/tickets mysql://three:@db3/tickets"
    settings = load({"TICKETS_DATABASES": urls, "TICKETS_DATABASE_PASSWORD_FILE": str(file)})
    assert [url.password for url in urls_of(settings)] == [f" {SECRET} ", "own", ""]
    settings = load({"TICKETS_DATABASES": urls, "TICKETS_DATABASE_PASSWORD": f" {SECRET}"})
    assert urls_of(settings)[0].password == f" {SECRET}"


def test_tokens_are_several_for_rotation(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"{SECRET}\nother\n")
    settings = load({"TICKETS_TOKENS_FILE": str(file), "TICKETS_ADMIN_TOKENS": "a  b"})
    assert secrets_of(settings, "tokens") == [SECRET, "other"]
    assert secrets_of(settings, "admin_tokens") == ["a", "b"]


@pytest.mark.parametrize("text", ["", " ", "\t\n"], ids=repr)
@pytest.mark.parametrize("variable", VARIABLE_NAMES)
def test_a_variable_that_is_set_and_empty_is_not_taken_for_one_that_is_unset(variable: str, text: str) -> None:
    line = error_of({variable: text})
    assert line.startswith(f"{variable}: '' cannot be used; expected ")
    assert line.endswith("; it is set and empty")
    line = error_of({f"{variable}_FILE": text})
    assert line.startswith(f"{variable}_FILE: '' cannot be used; expected the path of a file")
    secret = field(variable) in {"databases", "database_password", "tokens", "admin_tokens"}
    flag = "--" + field(variable).replace("_", "-") + ("-file" if secret else "")
    assert error_of({}, {field(variable): Flag(flag=flag, value=text)}).startswith(f"{flag}: '' cannot be used")


@pytest.mark.parametrize("path", ["/x", ""])
@pytest.mark.parametrize("text", [SECRET, ""])
@pytest.mark.parametrize("variable", ["TICKETS_PORT", "TICKETS_DATABASES", "TICKETS_TOKENS"])
def test_both_at_once_is_an_error_though_one_is_empty(variable: str, text: str, path: str) -> None:
    assert error_of({variable: text, f"{variable}_FILE": path}) == (
        f"{variable} and {variable}_FILE are both set: set one of them"
    )


# --- the embedded pair ---------------------------------------------------------------------------------------------


def test_the_embedded_pair_may_be_named(tmp_path: Path) -> None:
    file = tmp_path / "databases"
    file.write_text("embedded\n")
    named = ({"TICKETS_DATABASES": " embedded "}, {"TICKETS_DATABASES_FILE": str(file)})
    for settings in map(load, named):
        assert settings.embedded
        assert settings.folder == Path.cwd() / "ticket-data"


@pytest.mark.parametrize("text", ["Embedded", "embedded embedded", f"embedded {URLS}", f"{URLS} embedded", "sqlite"])
def test_the_embedded_pair_is_named_by_one_word_alone(text: str) -> None:
    assert "begin with mysql://" in error_of({"TICKETS_DATABASES": text})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "tickets.internal"])
def test_beyond_loopback_the_databases_have_to_be_named(host: str) -> None:
    line = error_of({"TICKETS_HOST": host, "TICKETS_DATABASES_URL": SECRET})
    assert line.startswith(
        f"TICKETS_DATABASES: it is unset, and TICKETS_HOST '{host}' is beyond loopback; expected URLs"
    )
    assert line.endswith("or embedded; TICKETS_DATABASES_URL, which is set, is not a setting")
    assert load({"TICKETS_HOST": host, "TICKETS_DATABASES": "embedded"}).embedded
    assert not load({"TICKETS_HOST": host, "TICKETS_DATABASES": URLS, "TICKETS_DATABASES_URL": "x"}).embedded


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_on_loopback_they_need_not_be_named(host: str) -> None:
    assert load({"TICKETS_HOST": host, "TICKETS_DATABASES_URL": "x"}).embedded


def test_a_folder_that_cannot_be_one_is_named_with_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    assert error_of({"TICKETS_DATA_DIR": "file/data"}) == (
        f"TICKETS_DATA_DIR: the folder {tmp_path}/file/data cannot be used ({tmp_path}/file is not a folder); expected "
        "a folder that this process may write to"
    )
    assert load({"TICKETS_DATA_DIR": "file/data", "TICKETS_DATABASES": URLS}).urls
    assert load({"TICKETS_DATA_DIR": "not/there/yet"}).folder == tmp_path / "not/there/yet"
    assert not (tmp_path / "not").exists()


@pytest.mark.parametrize("refused", ["", "odd.sqlite3", "even.sqlite3-life"])
def test_a_folder_that_this_user_may_not_write_to_is_refused_with_the_reason(
    refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / refused).touch()
    ask = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path / refused and ask(path, mode))
    line = error_of({"TICKETS_DATA_DIR": str(tmp_path)})
    assert line.startswith(f"TICKETS_DATA_DIR: the folder {tmp_path} cannot be used (")
    assert f"Permission denied: {tmp_path / refused} belongs to user {os.getuid()}" in line


# --- the list of URLs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("between", [" ", "\n", ",", ", ", " ,", "\t,\r\n", "   "], ids=repr)
def test_urls_are_separated_by_white_space_or_by_a_comma_before_a_scheme(between: str) -> None:
    text = f"mysql://u:a,b@db1/d{between}mysql://u@db2/d"
    urls = urls_of(load({"TICKETS_DATABASES": text}))
    assert [(url.name, url.password) for url in urls] == [("db1:3306", "a,b"), ("db2:3306", None)]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("mysql://u@n1:3306,n2,n3/d", "several nodes"),
        ("mysql://u@n1,n2/d mysql://u@m1/d", "several nodes"),
        ("mysql://u@db1/d,", "comma after its database"),
        ("mysql://u@db1/d,,mysql://u@db2/d", "comma after its database"),
        ("mysql://u@db1/d,u@db2/d", "before the @"),
        (",mysql://u@db1/d", "begin with mysql://"),
    ],
)
def test_any_other_comma_is_no_separator(text: str, wrong: str) -> None:
    assert wrong in error_of({"TICKETS_DATABASES": text})


@pytest.mark.parametrize("raw", ["#", "/", "?", "@/", "/@", "?@", "#@", "@#@", "%#", " ", "[", "]"])
@pytest.mark.parametrize("around", [("first", "last"), ("", "last"), ("first", ""), ("12", "34"), ("@a", "b@")])
def test_a_password_that_is_not_percent_encoded_is_explained_and_never_shown(raw: str, around: tuple[str, str]) -> None:
    password = raw.join(around)
    line = error_of({"TICKETS_DATABASES": f"mysql://u:{password}@db1/d"})
    assert "percent-encode" in line
    assert "TICKETS_DATABASE_PASSWORD" in line
    assert not any(part in line for part in ("first", "last", "12", "34", "@a", "b@"))
    encoded = quote(password, safe="")
    assert urls_of(load({"TICKETS_DATABASES": f"mysql://u:{encoded}@db1/d"}))[0].password == password


def test_a_url_that_was_given_for_a_path_is_not_shown() -> None:
    assert error_of({"TICKETS_DATABASES_FILE": f"mysql://u:{SECRET}@h/d"}).startswith(
        "TICKETS_DATABASES_FILE: the file cannot be read (No such file or directory)"
    )


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("TICKETS_PORT", "http", "a port, 0 to 65535"),
        ("TICKETS_PORT", "65536", "a port, 0 to 65535"),
        ("TICKETS_PORT", "8_000", "a port, 0 to 65535"),
        ("TICKETS_PORT", "0x50", "a port, 0 to 65535"),
        ("TICKETS_HOST", " ", "an address"),
        ("TICKETS_REQUEST_TIMEOUT", "0", "seconds, above 0"),
        ("TICKETS_REQUEST_TIMEOUT", "nan", "seconds, above 0"),
        ("TICKETS_DATABASE_TIMEOUT", "inf", "seconds, above 0"),
        ("TICKETS_PROBE_INTERVAL", "soon", "seconds, above 0"),
        ("TICKETS_DRAIN_SECONDS", "-1", "seconds, 0 to 3600"),
        ("TICKETS_RESERVE_SECONDS", "-1", "seconds, 0 to 3600"),
        ("TICKETS_RESERVE_SECONDS", "3601", "seconds, 0 to 3600"),
        ("TICKETS_RESERVE_SECONDS", "1_0", "seconds, 0 to 3600"),
        ("TICKETS_RESERVE_SECONDS", "nan", "seconds, 0 to 3600"),
        ("TICKETS_INCREMENT", "1", "a whole number from the number of databases"),
        ("TICKETS_INCREMENT", "65536", "to 65535"),
        ("TICKETS_UNVERIFIED", "maybe", "serve or refuse"),
        ("TICKETS_LOG_LEVEL", "loud", "debug, info, warning or error"),
        ("TICKETS_LOG_FORMAT", "xml", "text or json"),
        ("TICKETS_ACCESS_LOG", "perhaps", "true or false"),
    ],
)
def test_a_value_that_cannot_be_used_names_the_variable_the_value_and_what_is_wanted(
    variable: str, text: str, expected: str, tmp_path: Path
) -> None:
    line = error_of({variable: text})
    assert line.startswith(f"{variable}: {text.strip()!r} cannot be used; expected ")
    assert expected in line
    file = tmp_path / "value"
    file.write_text(f"{text.strip() or 'x' * 70_000}\n")
    if text.strip():
        assert error_of({f"{variable}_FILE": str(file)}).startswith(f"{variable}_FILE: {text.strip()!r} cannot")
    flag = Flag(flag="--flag", value=text)
    assert error_of({}, {field(variable): flag}).startswith(f"--flag: {text.strip()!r} cannot be used")


def test_kubernetes_own_variable_is_explained() -> None:
    line = error_of({"TICKETS_PORT": "tcp://10.96.0.1:8000"})
    assert line.startswith("TICKETS_PORT: 'tcp://10.96.0.1:8000' cannot be used")
    assert "enableServiceLinks: false" in line
    assert "enableServiceLinks: false" in error_of({"TICKETS_REDIS_PORT": "udp://10.96.0.1:6379"})


@pytest.mark.parametrize(
    "url",
    [
        f"oracle://u:{SECRET}@h/d",
        f"mysql://u:{SECRET}@h:port/d",
        f"mysql://u:{SECRET}@h",
        f"mysql://u:{SECRET}@h/d/e",
        f"mysql://u:{SECRET}@/d",
        f"mysql://u:{SECRET}@h/d?password={SECRET}",
        f"mysql://u:{SECRET}@h/d?ssl-mode=SOMETIMES",
        f"mysql://u:{SECRET}@h/d?ssl-mode=VERIFY_CA&ssl-ca=/nowhere/ca.pem",
        f"mysql://u:{SECRET}@h/d#x",
        f"mysql://u:{SECRET}/x@h/d",
        f"mysql://u:x {SECRET}@h/d",
        f"u:{SECRET}@h/d",
        " , ",
    ],
)
def test_urls_that_cannot_be_used_are_not_repeated(url: str) -> None:
    line = error_of({"TICKETS_DATABASES": url})
    assert line.startswith("TICKETS_DATABASES: ")
    assert "expected URLs like mysql://user:password@host:port/database" in line


@pytest.mark.parametrize("text", ["", "\n", " \n\n"], ids=repr)
@pytest.mark.parametrize("variable", VARIABLE_NAMES)
def test_a_file_with_nothing_in_it_is_an_error(variable: str, text: str, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text(text)
    assert error_of({f"{variable}_FILE": str(empty)}).startswith(f"{variable}_FILE: the file {empty} is empty")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert error_of({"TICKETS_TOKENS_FILE": str(missing)}).startswith(
        f"TICKETS_TOKENS_FILE: the file {missing} cannot be read (No such file or directory)"
    )
    noise = tmp_path / "noise"
    noise.write_bytes(b"\xff\xfe\x80")
    assert "(not text)" in error_of({"TICKETS_PORT_FILE": str(noise)})
    assert "(Is a directory)" in error_of({}, {"tokens": Flag(flag="--tokens-file", value=str(tmp_path))})


def test_refuse_wants_somebody_to_ask() -> None:
    one = {"TICKETS_DATABASES": "mysql://u@h/d", "TICKETS_UNVERIFIED": "refuse"}
    assert error_of(one).startswith("TICKETS_UNVERIFIED: 'refuse' needs another database")


def test_the_increment_leaves_room_to_grow_and_none_to_shrink() -> None:
    three = " ".join(f"mysql://u@db{n}/d" for n in (1, 2, 3))
    assert load({"TICKETS_DATABASES": three}).presumed_increment == 3
    assert load({"TICKETS_DATABASES": three, "TICKETS_INCREMENT": "8"}).presumed_increment == 8
    assert error_of({"TICKETS_DATABASES": three, "TICKETS_INCREMENT": "2"}).startswith("TICKETS_INCREMENT: '2'")


def test_nothing_shows_a_secret() -> None:
    settings = load(
        {
            "TICKETS_DATABASES": URLS,
            "TICKETS_DATABASE_PASSWORD": SECRET,
            "TICKETS_TOKENS": SECRET,
            "TICKETS_ADMIN_TOKENS": SECRET,
        }
    )
    shown = [repr(settings), str(settings), repr(settings.urls), settings.model_dump_json(exclude={"databases"})]
    assert not any(SECRET in text for text in shown)


@pytest.mark.parametrize("command", ["serve", "doctor"])
def test_there_is_a_flag_for_each_and_a_file_alone_for_secrets(command: str) -> None:
    parser = build_parser()
    for name in Settings.model_fields:
        secret = name in {"databases", "database_password", "tokens", "admin_tokens"}
        flag = "--" + name.replace("_", "-") + ("-file" if secret else "")
        assert vars(parser.parse_args([command, flag, "x"]))[name] == "x"


def test_a_url_with_another_password_is_the_same_server() -> None:
    assert DatabaseURL.parse("mysql://u@h/d", "p").password == "p"
