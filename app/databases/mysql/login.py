"""One connection of the driver, aiomysql on PyMySQL: the only module that uses what they do not document.

The driver sends the password in whichever form the server asks for, and goes on in plain text where the server has no
TLS. `Line` does neither.
"""

import asyncio
import importlib
import os
import ssl
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, NoReturn

# The driver asks for the name of its user when it is imported, and a uid in a container may have none.
os.environ.setdefault("LOGNAME", "ticketd")

# PyMySQL would load `cryptography`, 7 MiB, which passwords over plain TCP need: `write_packet` loads it then.
if _is_put_off := "cryptography" not in sys.modules:
    sys.modules["cryptography"] = None  # type: ignore[assignment]

import aiomysql
import pymysql._auth
import pymysql.err
from aiomysql.connection import _open_connection
from pymysql.connections import MysqlPacket
from pymysql.constants import CLIENT, COMMAND
from pymysql.converters import escape_item

from app import errors
from app.databases.dial import dial
from app.databases.mysql.url import MySQLAddress
from app.errors import DatabaseError, DatabaseFailed, DatabaseRefused, SequenceError, SettingsError

if _is_put_off:
    del sys.modules["cryptography"]

Rows = tuple[tuple[Any, ...], ...]

DENIED = frozenset({1044, 1142, 1143})
READ_ONLY = frozenset({1290, 1792, 1836, 3989})
_DAMAGED = (126, 127, 134, 144, 145, 1030, 1034, 1054, 1194, 1195, 1812, 1814, 1877, 1932)
_UNUSABLE = partial(partial, errors.SequenceUnusable)
_OF_SEQUENCE: dict[int, Callable[[], SequenceError]] = {
    # Lock wait, deadlock, query killed: the statement had no effect, and the connection stays good.
    **dict.fromkeys((1205, 1213, 1317), errors.SequenceBusy),
    **dict.fromkeys((167, 1264, 1467, 1690), errors.SequenceExhausted),
    **dict.fromkeys(_DAMAGED, _UNUSABLE("its table is damaged, or was altered: see the server's log, and CHECK TABLE")),
    **dict.fromkeys((1142, 1143), _UNUSABLE("its user lacks a privilege: GRANT CREATE, SELECT, INSERT, DELETE on it")),
    1146: errors.SequenceMissing,
    1364: _UNUSABLE("its table has a further column without a default"),
}
"""Makes, for each number of an error, the error for the sequence that the statement was about."""
_WORDS = {
    **dict.fromkeys((1021, 1114), "has a full disk"),
    **dict.fromkeys((1040, 1203, 1226), "has no connection left for its user"),
    **dict.fromkeys((1045, 1698), "refuses the user or password"),
    **dict.fromkeys((1142, 1143), "lacks a privilege: GRANT SELECT, INSERT, UPDATE, DELETE, CREATE on its database"),
    **dict.fromkeys(READ_ONLY, "is read-only"),
    1044: "does not allow its user into the database",
    1047: "is a cluster's node that is cut off",
    1049: "has no such database",
    1053: "is shutting down",
    1129: "blocks this host after too many failed connections: FLUSH HOSTS there",
    1130: "does not allow connections from this host",
    1146: "has lost the ticket server's own tables",
    1193: "is too old: it has to be MySQL 8.0, MariaDB 10.6 or later",
    1205: "waited too long for a lock",
    1213: "deadlocked again and again",
    1317: "had a statement killed",
    3032: "is offline",
    3118: "has locked the account",
    3159: "requires TLS: set ssl-mode=REQUIRED in its URL",
}
"""Says, for each number of an error, what is wrong with the whole database."""
_PLUGINS = ("mysql_native_password", "caching_sha2_password", "sha256_password")
_SALT_BYTES = 20
_AHEAD_BYTES = 512


class StatementFailed(DatabaseFailed):
    """The server answered a statement with an error. The driver's message stays at `__cause__`.

    number: MySQL's. wrong: what the error means if the statement was about one sequence; None if that cannot be.
    """

    def __init__(self, number: int) -> None:
        super().__init__(_WORDS.get(number, f"answered with error {number}"))
        self.number = number
        make = _OF_SEQUENCE.get(number)
        self.wrong = make and make()


class Result(NamedTuple):
    """The result of one statement.

    rows: what it read. affected: how many rows it made, or found by its conditions; a REPLACE counts a row that was
    there twice. insert_id: the first id that it drew, 0 where it drew none.
    """

    rows: Rows
    affected: int
    insert_id: int


class Line(aiomysql.Connection):  # type: ignore[misc]
    """A connection that sends packets of statements, and reads their results one after the other.

    Its methods raise StatementFailed where the server answers with an error; the server executes nothing that follows
    in the packet. After any other DatabaseError the line is of no use.

    mariadb: whether the server is MariaDB. server_version: as it greets.
    """

    mariadb: bool

    def __init__(self, address: MySQLAddress) -> None:
        # The driver encodes the password as Latin-1, and the server compares the bytes of UTF-8.
        password = (address.password or "").encode().decode("latin-1")
        # This plugin answers the greeting with a hash that is of no other use. The server then asks for its own plugin.
        how = {"auth_plugin": "caching_sha2_password", "client_flag": CLIENT.FOUND_ROWS, "program_name": "ticketd"}
        super().__init__(address.host, address.user, password, address.database, charset="utf8mb4", **how)
        self._address = address
        self._ahead = b""

    # --- statements --------------------------------------------------------------------------------------------------

    async def step(self, packet: str = "") -> Result:
        """Send a packet, unless it is empty, and return the next result."""
        try:
            if packet:
                await self._execute_command(COMMAND.COM_QUERY, packet.encode())
                # A draw is answered by one short packet. To read it here costs this process a fifth less for each draw.
                self._ahead = ahead = await self._reader.read(_AHEAD_BYTES)
                if ahead[3:5] == b"\1\0" and len(ahead) == 4 + int.from_bytes(ahead[:3], "little"):
                    self._ahead, self._next_seq_id = b"", 2
                    numbers = MysqlPacket(ahead[5:], "ascii")
                    return Result((), numbers.read_length_encoded_integer(), numbers.read_length_encoded_integer())
            await self._read_query_result()
        except Exception as error:  # a server can make the driver raise anything
            raise _translated(error) from error
        result = self._result
        return Result(result.rows or (), result.affected_rows or 0, result.insert_id or 0)

    async def run(self, statements: Sequence[str]) -> list[Result]:
        """Send statements in one packet, and return their results."""
        packet = ";".join(statements)
        return [await self.step("" if number else packet) for number in range(len(statements))]

    async def run_each(self, groups: Sequence[Sequence[str]]) -> list[list[Result] | SequenceError]:
        """Run groups of statements in one packet, each statement committed by itself.

        Returns for each group the results of its statements, or what is wrong with the sequence that it is about. A
        statement that fails ends the packet as well, so the groups behind it are sent again.
        """
        outcomes: list[list[Result] | SequenceError] = []
        while rest := groups[len(outcomes) :]:
            packet = ";".join([statement for group in rest for statement in group])
            try:
                for group in rest:
                    results = []
                    for _ in group:
                        results.append(await self.step(packet))
                        packet = ""
                    outcomes.append(results)
            except StatementFailed as error:
                if error.wrong is None:
                    raise
                outcomes.append(error.wrong)
        return outcomes

    async def commit_each(self, groups: Sequence[Sequence[str]]) -> list[list[Result] | SequenceError]:
        """Run groups of statements in one commit, or each in its own where one fails; returns what `run_each` does.

        A server that commits each group by itself flushes its log as often. The groups have to be in an order that all
        ticket servers keep, since each takes locks that it holds until the commit.
        """
        try:
            _, *results, _ = await self.run(["BEGIN", *(each for group in groups for each in group), "COMMIT"])
        except StatementFailed as error:
            await self.step("ROLLBACK")
            if len(groups) > 1:
                return [(await self.commit_each([group]))[0] for group in groups]
            if error.wrong is None:
                raise
            return [error.wrong]
        left = iter(results)
        return [list(islice(left, len(group))) for group in groups]

    def with_settings(self, verb: str, rest: str, **settings: str | int) -> str:
        """Return a statement for which alone the session has these settings."""
        each = [f"{name}={value}" for name, value in settings.items()]
        if self.mariadb:
            return f"SET STATEMENT {', '.join(each)} FOR {verb} {rest}"
        return f"{verb} /*+ SET_VAR({') SET_VAR('.join(each)}) */ {rest}"

    async def _read_bytes(self, number: int) -> bytes:
        """Read what the driver wants, first of what was read ahead."""
        found, self._ahead = self._ahead[:number], self._ahead[number:]
        return found if len(found) == number else found + await super()._read_bytes(number - len(found))

    # --- the login ---------------------------------------------------------------------------------------------------

    async def open(self, seconds: float) -> None:
        """Connect and log in; the driver's `_connect` with another way to find an address.

        seconds: how long the caller will wait before it cancels this. Raises DatabaseFailed, and DatabaseRefused where
        TLS or the server's way to ask for the password is not acceptable.
        """
        mode = self._address.ssl_mode
        try:
            self._ssl_context: ssl.SSLContext | None = await asyncio.to_thread(self._address.tls_context)
            try:
                opened = await dial(self._address.host, self._address.port, seconds)
            except OSError as error:
                raise DatabaseFailed("refuses connections, or no address of its host answers") from error
            self._reader, self._writer = await _open_connection(sock=opened)
            self._set_keep_alive()
            self._set_nodelay(True)
            self._next_seq_id = 0
            await self._get_server_information()
            self.mariadb = "mariadb" in self.server_version.lower()
            offered = self.server_capabilities & CLIENT.SSL
            if not offered and mode not in ("DISABLED", "PREFERRED"):
                asked = f"does not use TLS, which its URL asks for (ssl-mode={mode})"
                raise DatabaseRefused(f"{asked}: give it a certificate, or change its URL")
            if self._ssl_context is not None:
                self.client_flag |= offered
            await self._request_authentication()
        except DatabaseError:
            raise
        except Exception as error:
            raise _translated(error) from error

    async def _process_auth(self, plugin_name: bytes, auth_packet: Any) -> Any:
        """Log in by the plugin that the server asks for instead of the first one."""
        name = plugin_name.decode("latin-1")
        if name not in _PLUGINS:
            _refuse(name)
        # Behind the salt servers put a zero, which the driver would take for a part of it.
        auth_packet._data = auth_packet._data[: auth_packet._position + _SALT_BYTES]
        return await super()._process_auth(plugin_name, auth_packet)

    def write_packet(self, payload: bytes) -> None:
        """Send a packet of the login, unless it is how two of the plugins ask for the server's public key."""
        if payload in (b"\1", b"\2") and not self._address.get_server_public_key:
            raise DatabaseRefused(
                "asks for the password without TLS, encrypted for a public key that anybody could have sent: set "
                "ssl-mode=VERIFY_IDENTITY and ssl-ca in its URL, or get-server-public-key=true on a network you trust"
            )
        if payload in (b"\1", b"\2") and not pymysql._auth._have_cryptography:
            load_cryptography()
        super().write_packet(payload)

    def close(self) -> None:
        """Close the socket now: TLS would wait half a minute for the goodbye of a server that stands still."""
        if self._writer is not None:
            self._writer.transport.abort()
        super().close()


def quoted(identifier: str) -> str:
    """Return an identifier in back-quotes."""
    return "`" + identifier.replace("`", "``") + "`"


def literal(*values: str | int | None) -> str:
    """Return values as they stand in a statement; the session's sql_mode leaves the backslash its meaning."""
    return ", ".join(str(escape_item(value, "utf8mb4")) for value in values)


def _translated(error: Exception) -> DatabaseFailed:
    """Return our error for one of the driver's, or of the network under it."""
    if isinstance(error, SettingsError):
        return DatabaseFailed(str(error))
    if isinstance(error, ssl.SSLError) or isinstance(error.__cause__ or error.__context__, ssl.SSLError):
        return DatabaseFailed("could not agree on TLS: the certificate or the protocol does not fit")
    code = error.args[0] if isinstance(error, pymysql.err.MySQLError) and error.args else None
    if isinstance(code, int) and not 2000 <= code <= 2999:  # these are the driver's own
        return StatementFailed(code)
    return DatabaseFailed("broke the connection off, or does not speak MySQL's protocol")


def _refuse(plugin: str) -> NoReturn:
    asked = f"asks for the password by the authentication plugin {plugin[:64]!a}"
    raise DatabaseRefused(f"{asked}: give its user one of {', '.join(_PLUGINS)}")


def _refuse_old(*_: object) -> NoReturn:
    """Stand in for what makes the hash of mysql_old_password, which is as good as the password."""
    _refuse("mysql_old_password")


def load_cryptography() -> None:
    """Load what encrypts a password for the server's public key."""
    importlib.reload(pymysql._auth)
    pymysql._auth.scramble_old_password = _refuse_old  # as below: the module is another one now


pymysql._auth.scramble_old_password = _refuse_old
