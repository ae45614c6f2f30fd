"""Logins to servers that are not what they should be: what such a server hears, and that nobody waits for it."""

import asyncio

import pytest

from app.databases.engines import parse_list
from app.databases.mysql.login import load_cryptography
from app.errors import DatabaseError, DatabaseFailed, DatabaseRefused
from tests.engines.bench import ODD, connector

MYSQL = "mysql://root:secret@127.0.0.1:{}/tickets?ssl-mode=DISABLED"
POSTGRESQL = [f"postgresql://u:secret@127.0.0.1:{{}}/d?sslmode={mode}" for mode in ("disable", "prefer", "require")]
NONSENSE = [
    *((MYSQL, [said]) for said in (b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x05\0\0\0\x0a8.0\0")),
    *(
        (url, [None, said])
        for said in (b"R\0\0\0\x08\0\0\0\0D\xff\xff\xff\xf0", b"R\x80\0\0\0", b"E\x7f\xff\xff\xff", b"HTTP/1.1 400\r\n")
        for url in POSTGRESQL
    ),
    ("redis://u:secret@127.0.0.1:{}/0", [None, b"HTTP/1.1 400 Bad Request\r\n\r\n"]),
]


async def log_in(url: str, *says: bytes | None, seconds: float = 30) -> tuple[BaseException, bytes]:
    """Log in to a server that says this, and reads something at each None.

    Returns the error, and what the server has heard after that until the client closed the connection.
    """
    heard, serving = list[bytes](), list[asyncio.Task[None] | None]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.current_task())
        last = b""
        try:
            for each in says:
                if each is None:
                    await reader.read(1024)
                else:
                    writer.write(each)
                    await asyncio.sleep(0.01)
            last = await reader.read()
        except ConnectionError:  # the client reset the connection
            pass
        heard.append(last)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = url.format(server.sockets[0].getsockname()[1])
    with pytest.raises((DatabaseError, TimeoutError)) as caught:
        async with asyncio.timeout(seconds):
            await connector(url)(parse_list(url, None)[0], ODD, 5.0)
    server.close()
    await asyncio.sleep(0)  # lets the connections open
    async with asyncio.timeout(30):
        await asyncio.gather(*filter(None, serving))
    await asyncio.sleep(0)  # lets them close
    return caught.value, b"".join(heard)


@pytest.mark.parametrize(("url", "says"), NONSENSE)
async def test_an_answer_that_is_none_is_a_failure_at_once(url: str, says: list[bytes | None]) -> None:
    assert isinstance((await log_in(url, *says))[0], DatabaseFailed)


@pytest.mark.parametrize("url", [MYSQL, POSTGRESQL[1], "redis://127.0.0.1:{}/0"])
async def test_a_connection_that_is_given_up_is_closed(url: str) -> None:
    assert isinstance((await log_in(url, seconds=0.3))[0], TimeoutError)


@pytest.mark.parametrize("is_loaded", [False, True], ids=["at first", "after a login by a public key"])
@pytest.mark.parametrize(
    ("asked", "names_plugins"),
    [
        *((b"\xfe" + asked, True) for asked in (b"", b"saltsalt", b"mysql_old_password\0saltsalt\0")),
        *((b"\xfe" + asked, True) for asked in (b"mysql_clear_password\0", b"sha256_password\0" + b"salt" * 5)),
        (b"\1\4", True),  # caching_sha2_password does not know the hash, and wants the password
        (b"\xfemysql_native_password\0" + b"salt" * 5, False),
    ],
)
async def test_a_stranger_in_place_of_mysql_hears_no_password_in_a_form_that_it_could_use(
    asked: bytes, names_plugins: bool, is_loaded: bool
) -> None:
    if is_loaded:
        load_cryptography()
    able = b"\xff\xf7\x21\2\0" + (b"\x08\0" if names_plugins else b"\0\0")
    greeting = b"\x0a9.7.0\0" + bytes(4) + b"saltsalt\0" + able + b"\x15" + bytes(10) + b"saltsaltsalt\0"
    greeting += b"caching_sha2_password\0"
    packets = [bytes([len(each), 0, 0, 2 * number]) + each for number, each in enumerate((greeting, asked))]
    error, heard = await log_in(MYSQL, packets[0], None, packets[1])
    assert isinstance(error, DatabaseRefused)
    assert "asks for the password" in str(error)
    assert heard == b""


async def test_a_stranger_that_asks_for_the_password_of_postgresql_in_pieces_does_not_get_it() -> None:
    error, heard = await log_in(POSTGRESQL[0], None, b"N\0\0\0\x05\0R\0\0", b"\0\x08\0\0", b"\0\x03")
    assert isinstance(error, DatabaseRefused)
    assert "in clear text" in str(error)
    assert heard == b""
