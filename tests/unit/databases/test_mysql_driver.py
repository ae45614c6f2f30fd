"""The adapter of the driver: what it needs of it, how it connects, and the driver's errors in our words."""

import ast
import asyncio
import contextlib
import inspect
import ssl
from collections.abc import AsyncIterator
from hashlib import sha1
from types import CodeType, FunctionType

import aiomysql
import pymysql.err
import pytest
from pymysql.constants import CLIENT

from app.common.errors import (
    ColumnExhausted,
    SequenceMissing,
    SequenceUnavailable,
    SettingsError,
    TicketDatabaseBusy,
    TicketDatabaseUnavailable,
)
from app.databases import engines
from app.databases.mysql.line import driver as mysql_driver
from app.databases.mysql.line.driver import Driver, NoAgreement, check_driver, code_of, translate
from app.databases.mysql.line.url import DatabaseURL

URL = DatabaseURL.parse("mysql://u@odd.example/d")


OWN_NAMES = {
    "__init__",
    "_before_rows",
    "_bound",
    "_context",
    "_left",
    "_public_key",
    "_says_goodbye",
    "_salt",
    "_url",
    "_verified",
    "connect_to",
    "expect",
}
"""What the adapter's own subclass adds; a constructor there always is."""


def used_of_the_driver() -> list[str]:
    """Every name of a connection of the driver's that the adapter uses, read off its own text."""
    names = set[str]()
    for scope in ast.parse(inspect.getsource(mysql_driver)).body:
        if not isinstance(scope, ast.ClassDef):
            continue
        subclass = any("aiomysql" in ast.unparse(base) for base in scope.bases)
        driver = ["self", "super()"] if subclass else ["self._connection"]
        for node in ast.walk(scope):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) in driver:
                names.add(node.attr)
            elif subclass and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(node.name)
    return sorted(names - OWN_NAMES)


USED = used_of_the_driver()
METHODS = [name for name in USED if hasattr(aiomysql.Connection, name)]
ATTRIBUTES = [name for name in USED if name not in METHODS]


def changed_driver(*, lacks: str = "", renames: str = "") -> type:
    """The driver's class of connections without a method, or with an attribute called something else."""

    def renamed(code: CodeType) -> CodeType:
        return code.replace(co_names=tuple("renamed" if each == renames else each for each in code.co_names))

    members: dict[str, object] = {}
    for name, value in vars(aiomysql.Connection).items():
        if isinstance(value, FunctionType):
            value = FunctionType(
                renamed(value.__code__), value.__globals__, name, value.__defaults__, value.__closure__
            )
        if name not in (lacks, "__dict__", "__weakref__"):
            members[name] = value
    return type("Connection", (), members)


def test_the_installed_driver_has_all_that_is_used_of_it() -> None:
    check_driver()


@pytest.mark.parametrize("name", METHODS)
def test_a_method_that_is_missing_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiomysql, "Connection", changed_driver(lacks=name))
    with pytest.raises(
        SettingsError, match=rf"^aiomysql \d[\d.]+ cannot be used: its Connection has no [\w, ]*\b{name}\b"
    ):
        check_driver()


OVERRIDDEN = ["_get_server_information", "_process_auth", "_read_bytes", "close"]


@pytest.mark.parametrize("name", ATTRIBUTES + OVERRIDDEN)
def test_an_attribute_that_is_missing_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiomysql, "Connection", changed_driver(renames=name))
    with pytest.raises(SettingsError, match=rf"has no [\w, ]*\b{name}\b"):
        check_driver()


def test_the_driver_is_checked_before_a_database_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiomysql, "Connection", changed_driver(lacks="insert_id"))
    with pytest.raises(SettingsError, match="insert_id"):
        engines.make_database(URL, 1, 2, 1.0, lambda *_: None)
    with pytest.raises(SettingsError, match="insert_id"):
        engines.make_inspector(URL, 1, 2, 1.0)


class Greeter:
    """A server on a socket that greets, and keeps what it is told next; then it says `then` and hangs up."""

    def __init__(self, capabilities: int, then: bytes) -> None:
        self.then = then
        self.told: list[bytes] = []
        low, high = (capabilities & 0xFFFF).to_bytes(2, "little"), (capabilities >> 16).to_bytes(2, "little")
        self._greeting = (
            b"\x0a8.4.3\x00" + bytes(4) + b"saltsalt\x00" + low + b"\x2d\x02\x00" + high + b"\x15" + bytes(10)
        ) + b"saltsaltsalt\x00mysql_native_password\x00"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            writer.write(packet(self._greeting, 0))
            self.told.append(await heard(reader))
            if self.asks_for_tls:
                self.told[-1] += await reader.read(4096)
            writer.write(packet(self.then, 2))

    @property
    def asks_for_tls(self) -> bool:
        """A request for TLS is a login's first 32 bytes."""
        return len(self.told[-1]) == 32


def packet(body: bytes, number: int) -> bytes:
    return len(body).to_bytes(3, "little") + bytes([number]) + body


async def heard(reader: asyncio.StreamReader) -> bytes:
    """The body of the next packet."""
    head = await reader.readexactly(4)
    return await reader.readexactly(int.from_bytes(head[:3], "little"))


DENIED = b"\xff\x15\x04#28000no"
OK = b"\x00\x00\x00\x02\x00\x00\x00"
PLAIN = CLIENT.PROTOCOL_41 | CLIENT.SECURE_CONNECTION | CLIENT.PLUGIN_AUTH | CLIENT.CONNECT_WITH_DB


@contextlib.asynccontextmanager
async def greeted(greeter: Greeter, addresses: list[str]) -> AsyncIterator[DatabaseURL]:
    """Have it listen at these addresses, on one port; the URL of that port at another name."""
    async with contextlib.AsyncExitStack() as stack:
        port = 0
        for address in addresses:
            listener = await stack.enter_async_context(await asyncio.start_server(greeter.serve, address, port))
            port = listener.sockets[0].getsockname()[1]
        yield DatabaseURL.parse(f"mysql://u:p%C3%BC%E2%82%AC@odd.example:{port}/d")


async def test_a_password_goes_out_in_utf8() -> None:
    greeter = Greeter(PLAIN, OK)
    async with greeted(greeter, ["127.0.0.1"]) as url:
        driver = Driver(url, None)
        await driver.connect(["127.0.0.1"])
        driver.close()
    once = sha1("pü€".encode()).digest()
    salted = sha1(b"saltsaltsaltsaltsalt" + sha1(once).digest()).digest()
    assert bytes(a ^ b for a, b in zip(once, salted, strict=True)) in greeter.told[0]
    assert "ü" not in repr(driver)


async def test_each_address_of_a_host_is_tried_until_one_can_be_connected_to() -> None:
    greeter = Greeter(PLAIN, OK)
    async with greeted(greeter, ["127.0.0.2", "127.0.0.3"]) as url:
        driver = Driver(url, None)
        await driver.connect(["127.0.0.1", "127.0.0.2", "127.0.0.3"])
        assert len(greeter.told) == 1
        driver.close()
        greeter.then = DENIED
        with pytest.raises(pymysql.err.OperationalError, match="1045"):
            await Driver(url, None).connect(["127.0.0.2", "127.0.0.3"])
        assert len(greeter.told) == 2
        with pytest.raises(pymysql.err.OperationalError, match="2003"):
            await Driver(url, None).connect(["127.0.0.1"])


async def test_the_certificate_is_held_against_the_hosts_name_and_not_its_address() -> None:
    """The name that a client expects is in the first of its bytes, in the clear."""
    greeter = Greeter(PLAIN | CLIENT.SSL, OK)
    async with greeted(greeter, ["127.0.0.1"]) as url:
        with pytest.raises(pymysql.err.OperationalError):
            await Driver(url, ssl.create_default_context()).connect(["127.0.0.1"])
    assert b"odd.example" in greeter.told[0]
    assert b"127.0.0.1" not in greeter.told[0]


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
        (ssl.SSLError("bad certificate"), NoAgreement, "TLS"),
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
