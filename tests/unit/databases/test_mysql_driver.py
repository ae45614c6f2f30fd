"""The adapter of the driver: what it needs of it, how it connects, and the driver's errors in our words."""

import ssl
from types import CodeType, FunctionType

import aiomysql
import pymysql.err
import pytest

from app.common.errors import (
    ColumnExhausted,
    SequenceMissing,
    SequenceUnavailable,
    SettingsError,
    TicketDatabaseBusy,
    TicketDatabaseUnavailable,
)
from app.databases import engines
from app.databases.mysql import driver as mysql_driver
from app.databases.mysql.connection import MySQLConnection
from app.databases.mysql.driver import Driver, check_driver, code_of, translate
from app.databases.mysql.url import DatabaseURL

URL = DatabaseURL.parse("mysql://u@odd.example/d")


def rename(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Have the driver call an attribute of its connections something else."""

    def renamed(code: CodeType) -> CodeType:
        return code.replace(co_names=tuple("_renamed" if each == name else each for each in code.co_names))

    for key, value in list(vars(aiomysql.Connection).items()):
        if isinstance(value, FunctionType):
            made = FunctionType(renamed(value.__code__), value.__globals__, key, value.__defaults__, value.__closure__)
            monkeypatch.setattr(aiomysql.Connection, key, made)


def test_the_installed_driver_has_all_that_is_used_of_it() -> None:
    check_driver()


@pytest.mark.parametrize("name", mysql_driver._METHODS)
def test_a_method_that_is_missing_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(aiomysql.Connection, name)
    with pytest.raises(SettingsError, match=rf"^aiomysql \d[\d.]+ cannot be used: its Connection has no {name}\."):
        check_driver()


@pytest.mark.parametrize("name", mysql_driver._ATTRIBUTES)
def test_an_attribute_that_is_missing_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rename(monkeypatch, name)
    with pytest.raises(SettingsError, match=rf"has no {name}\."):
        check_driver()


def test_the_driver_is_checked_before_a_database_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(aiomysql.Connection, "_read_query_result")
    with pytest.raises(SettingsError, match="_read_query_result"):
        engines.make_database(URL, 1, 2, 1.0, lambda *_: None)
    with pytest.raises(SettingsError, match="_read_query_result"):
        engines.make_inspector(URL, 1, 2, 1.0)


async def test_a_password_goes_out_in_utf8() -> None:
    connection = MySQLConnection(DatabaseURL.parse("mysql://u:p%C3%BC%E2%82%AC@h/d"), 2, 1, None)
    assert connection._driver._connection._password.encode("latin-1") == "pü€".encode()
    assert "ü" not in repr(connection)


async def test_each_address_of_a_host_is_tried_and_the_certificate_is_held_against_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[str] = []
    code = 2003

    async def connect(driver: aiomysql.Connection) -> None:
        tried.append(driver.host)
        if len(tried) % 2:
            raise pymysql.err.OperationalError(code, "no")
        await driver._get_server_information()

    async def greeting(_: aiomysql.Connection) -> None:
        return

    monkeypatch.setattr(aiomysql.Connection, "_connect", connect)
    monkeypatch.setattr(aiomysql.Connection, "_get_server_information", greeting)
    driver = Driver(URL, None)
    await driver.connect(["192.0.2.1", "192.0.2.2", "192.0.2.3"])
    assert tried == ["192.0.2.1", "192.0.2.2"]
    assert driver._connection.host == "odd.example"
    code = 1045
    with pytest.raises(pymysql.err.OperationalError):
        await driver.connect(["192.0.2.1", "192.0.2.2"])
    assert len(tried) == 3


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (pymysql.err.OperationalError(1213, "Deadlock found"), TicketDatabaseBusy, "deadlock"),
        (pymysql.err.OperationalError(1205, "Lock wait"), TicketDatabaseBusy, "lock"),
        (
            pymysql.err.OperationalError(1045, "Access denied for 'u'@'h'"),
            TicketDatabaseUnavailable,
            "refuses the user",
        ),
        (pymysql.err.OperationalError(2003, "Can't connect"), TicketDatabaseUnavailable, "refuses connections"),
        (pymysql.err.OperationalError(1290, "--read-only"), TicketDatabaseUnavailable, "read-only"),
        (pymysql.err.ProgrammingError(1146, "Table 't' does not exist"), SequenceMissing, "no table"),
        (pymysql.err.OperationalError(1467, "autoinc"), ColumnExhausted, "further id"),
        (pymysql.err.InternalError(1932, "gone"), SequenceUnavailable, "damaged"),
        (pymysql.err.OperationalError(9999, "secret text"), TicketDatabaseUnavailable, "error 9999"),
        (pymysql.err.InternalError("Packet sequence number wrong"), TicketDatabaseUnavailable, "broke"),
        (TimeoutError(), TicketDatabaseUnavailable, "in time"),
        (ssl.SSLError("bad certificate"), TicketDatabaseUnavailable, "TLS"),
        (ConnectionResetError(), TicketDatabaseUnavailable, "broke"),
        (IndexError("x"), TicketDatabaseUnavailable, "nonsense"),
    ],
)
def test_errors_in_our_own_words(error: Exception, kind: type[Exception], says: str) -> None:
    found = translate(error)
    assert type(found) is kind
    assert says in str(found)
    assert not any(str(part) in str(found) for part in error.args if isinstance(part, str))


def test_the_code_behind_one_of_our_errors() -> None:
    ours = TicketDatabaseUnavailable()
    assert code_of(ours) is None
    ours.__cause__ = pymysql.err.OperationalError(1045, "no")
    assert code_of(ours) == 1045
