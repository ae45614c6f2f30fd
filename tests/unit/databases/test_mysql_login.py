"""Who gets the password: a thief between the server and its database, by what he asks for, in each mode.

He is given it where the URL says that nobody looks who he is, as MySQL's own client gives it; and the real database, by
its certificate, in the same ways.
"""

import asyncio
import contextlib
import hashlib
import socket
import ssl
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from app.common.errors import TicketDatabaseError, TicketDatabaseMisconfigured
from app.databases.mysql.line.connection import MySQLConnection
from app.databases.mysql.line.url import DatabaseURL
from tests.fakes.certificates import Authority
from tests.fakes.mysql_server import OK, SALT, FakeMySQL, Talk

PASSWORD = "s3cret-pü"
SECONDS = 20
NEW_SALT = b"another salt, of 20!"


class Thief:
    """Asks for the password in one way. `key`: his own. `solved`: what he could decrypt with it."""

    def __init__(self, key: rsa.RSAPrivateKey, way: "Way", tls: ssl.SSLContext | None) -> None:
        self.key = key
        self.way = way
        self.tls = tls
        self.solved = b""
        self.talk: Talk | None = None

    def serve(self, talk: Talk) -> None:
        self.talk = talk
        self.way(self, talk)
        talk.say(OK)

    def ask_for_key(self, talk: Talk, salt: bytes) -> None:
        """Send the key and decrypt what comes back."""
        pem = self.key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        talk.say(b"\x01" + pem)
        oaep = padding.OAEP(mgf=padding.MGF1(algorithm=hashes.SHA1()), algorithm=hashes.SHA1(), label=None)
        mixed = self.key.decrypt(talk.hear(), oaep)
        self.solved += bytes(a ^ b for a, b in zip(mixed, cycle(salt), strict=False))

    @property
    def holds_it(self) -> bool:
        """Whether he has got the password."""
        return self.talk is not None and PASSWORD.encode() in self.talk.heard + self.solved


Way = Callable[[Thief, Talk], None]


def in_clear(thief: Thief, talk: Talk) -> None:
    talk.greet(tls=thief.tls)
    talk.say(b"\xfemysql_clear_password\0")
    talk.hear()


def in_clear_at_once(thief: Thief, talk: Talk) -> None:
    talk.greet("mysql_clear_password", tls=thief.tls)
    talk.say(b"\xfemysql_clear_password\0")
    talk.hear()


def caching_sha2(thief: Thief, talk: Talk) -> None:
    talk.greet("caching_sha2_password", tls=thief.tls)
    talk.say(b"\x01\x04")
    if talk.hear() == b"\x02":
        thief.ask_for_key(talk, SALT)


def switch_to_caching_sha2(thief: Thief, talk: Talk) -> None:
    talk.greet(tls=thief.tls)
    talk.say(b"\xfecaching_sha2_password\0" + NEW_SALT + b"\0")
    talk.hear()
    talk.say(b"\x01\x04")
    if talk.hear() == b"\x02":
        thief.ask_for_key(talk, NEW_SALT)


def sha256(thief: Thief, talk: Talk) -> None:
    talk.greet("sha256_password", tls=thief.tls)
    talk.say(b"\xfesha256_password\0" + NEW_SALT + b"\0")
    if talk.hear() == b"\x01":
        thief.ask_for_key(talk, NEW_SALT)


def sha256_with_a_key_at_once(thief: Thief, talk: Talk) -> None:
    talk.greet("sha256_password", tls=thief.tls)
    thief.ask_for_key(talk, SALT)


def old_password(thief: Thief, talk: Talk) -> None:
    talk.greet(tls=thief.tls)
    talk.say(b"\xfemysql_old_password\0" + NEW_SALT + b"\0")
    talk.hear()


def old_password_without_a_name(thief: Thief, talk: Talk) -> None:
    talk.greet(tls=thief.tls)
    talk.say(b"\xfe")
    talk.hear()


def unknown(thief: Thief, talk: Talk) -> None:
    talk.greet("dialog", tls=thief.tls)
    talk.say(b"\xfedialog\0Password: ")
    talk.hear()


CLEAR = [in_clear, in_clear_at_once]
FULL = [caching_sha2, switch_to_caching_sha2, sha256]
NEVER = [sha256_with_a_key_at_once, old_password, old_password_without_a_name, unknown]
REFUSED = {
    in_clear: "clear text",
    in_clear_at_once: "clear text",
    caching_sha2: "get-server-public-key=true",
    switch_to_caching_sha2: "get-server-public-key=true",
    sha256: "get-server-public-key=true",
    old_password: "plugin mysql_old_password, which is not supported",
    old_password_without_a_name: "plugin mysql_old_password, which is not supported",
    unknown: "plugin dialog, which is not supported",
}


class Stage(NamedTuple):
    """The file of the authority that is trusted; by name, what those who answer speak TLS with; the thief's key."""

    trusted: Path
    tls: dict[str, ssl.SSLContext | None]
    key: rsa.RSAPrivateKey


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    folder = tmp_path_factory.mktemp("certificates")
    trusted, own = Authority(folder, "trusted"), Authority(folder, "own")
    tls: dict[str, ssl.SSLContext | None] = {
        "no TLS": None,
        "a certificate of his own": own.server("127.0.0.1"),
        "another's name": trusted.server("127.0.0.2"),
        "the right certificate": trusted.server("127.0.0.1"),
    }
    return Stage(trusted.file, tls, rsa.generate_private_key(public_exponent=65537, key_size=2048))


VERIFIED = {"VERIFY_CA": {"another's name", "the right certificate"}, "VERIFY_IDENTITY": {"the right certificate"}}
MODES = {
    "?ssl-mode=DISABLED": "DISABLED",
    "": "PREFERRED",
    "?ssl-mode=REQUIRED": "REQUIRED",
    "?ssl-ca={ca}": "VERIFY_CA",
    "?ssl-mode=PREFERRED&ssl-ca={ca}": "VERIFY_CA",
    "?ssl-mode=REQUIRED&ssl-ca={ca}": "VERIFY_CA",
    "?ssl-mode=VERIFY_CA&ssl-ca={ca}": "VERIFY_CA",
    "?ssl-mode=VERIFY_IDENTITY&ssl-ca={ca}": "VERIFY_IDENTITY",
}


def may_have_it(mode: str, speaks: str, way: Way) -> bool:
    """Whether whoever answers so may have the password in this mode."""
    if way in NEVER:
        return False
    if mode in VERIFIED:
        return speaks in VERIFIED[mode]
    return way in FULL and mode != "DISABLED" and speaks != "no TLS"


async def log_in(thief: Thief, query: str) -> TicketDatabaseError | None:
    """Log in at the thief's; the error that this ended in. It never holds the password."""
    with FakeMySQL(thief.serve) as server:
        url = DatabaseURL.parse(f"mysql://u:{PASSWORD}@127.0.0.1:{server.port}/d{query}")
        connection = MySQLConnection(url, 2, 1, url.ssl_context())
        try:
            async with asyncio.timeout(SECONDS):
                await connection.log_in()
        except TicketDatabaseError as error:
            for each in (error, error.__cause__, error.__context__):
                assert PASSWORD not in f"{each} {each!r}"
            return error
        finally:
            connection.drop()
            await asyncio.to_thread(server.wait)
    return None


@pytest.mark.parametrize("query", MODES)
@pytest.mark.parametrize("speaks", ["no TLS", "a certificate of his own", "another's name", "the right certificate"])
async def test_he_holds_the_password_only_where_the_mode_lets_him(stage: Stage, query: str, speaks: str) -> None:
    mode = MODES[query]
    for way in (*CLEAR, *FULL, *NEVER):
        thief = Thief(stage.key, way, stage.tls[speaks])
        error = await log_in(thief, query.format(ca=stage.trusted))
        expected = may_have_it(mode, speaks, way)
        assert thief.holds_it == expected, way
        assert (error is None) == expected, (way, error)
        if mode == "REQUIRED" and speaks == "no TLS":
            continue
        if error is not None and (mode not in VERIFIED or speaks in VERIFIED[mode]) and way in REFUSED:
            assert isinstance(error, TicketDatabaseMisconfigured), way
            assert REFUSED[way] in str(error)
            assert "To fix it: " in str(error)


@pytest.mark.parametrize("way", [*CLEAR, *FULL, *NEVER])
async def test_without_tls_a_key_is_taken_from_whoever_sends_it_where_the_url_says_so(stage: Stage, way: Way) -> None:
    thief = Thief(stage.key, way, None)
    error = await log_in(thief, "?get-server-public-key=true")
    assert thief.holds_it == (way in FULL)
    assert (error is None) == (way in FULL)


@pytest.mark.parametrize("query", ["?ssl-ca={ca}", "?ssl-mode=REQUIRED", "?ssl-mode=VERIFY_IDENTITY&ssl-ca={ca}"])
async def test_where_tls_is_asked_for_nothing_at_all_is_said_without_it(stage: Stage, query: str) -> None:
    thief = Thief(stage.key, in_clear, None)
    error = await log_in(thief, query.format(ca=stage.trusted))
    assert isinstance(error, TicketDatabaseMisconfigured)
    assert "does not use TLS, which ssl-" in str(error)
    assert thief.talk is not None
    assert thief.talk.heard == b""


@pytest.mark.parametrize("salt", [SALT, NEW_SALT])
async def test_who_has_the_hash_already_needs_no_more(stage: Stage, salt: bytes) -> None:
    """A cached login: of use once, for what was asked, and only to somebody who knows the password's hash."""

    def hashed(thief: Thief, talk: Talk) -> None:
        if salt == SALT:
            talk.greet("caching_sha2_password")
        else:
            talk.greet()
            talk.say(b"\xfecaching_sha2_password\0" + salt + b"\0")
            talk.hear()
        once = hashlib.sha256(PASSWORD.encode()).digest()
        salted = hashlib.sha256(hashlib.sha256(once).digest() + salt).digest()
        if bytes(a ^ b for a, b in zip(once, salted, strict=True)) in talk.heard:
            talk.say(b"\x01\x03")

    thief = Thief(stage.key, hashed, None)
    assert await log_in(thief, "?ssl-mode=DISABLED") is None
    assert not thief.holds_it


async def test_who_falls_silent_within_tls_keeps_no_socket(stage: Stage) -> None:
    """Frozen, it sends no goodbye either."""
    logged_in, cut = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def freezes(talk: Talk) -> None:
        talk.greet("caching_sha2_password", stage.tls["the right certificate"])
        raw = socket.socket(fileno=talk.socket.detach())  # nobody answers in TLS any more
        talk.socket = raw
        loop.call_soon_threadsafe(logged_in.set)
        with contextlib.suppress(ConnectionError):
            while raw.recv(4_096):
                pass
        loop.call_soon_threadsafe(cut.set)

    with FakeMySQL(freezes) as server:
        url = DatabaseURL.parse(f"mysql://u:{PASSWORD}@127.0.0.1:{server.port}/d?ssl-mode=REQUIRED")
        connection = MySQLConnection(url, 2, 1, url.ssl_context())
        login = asyncio.create_task(connection.log_in())
        async with asyncio.timeout(SECONDS):
            await logged_in.wait()
            login.cancel()
            await asyncio.wait([login])
            await cut.wait()


async def test_a_greeting_that_ends_early_is_nonsense(stage: Stage) -> None:
    def stops(thief: Thief, talk: Talk) -> None:
        talk.say(b"\x0a8.4.3\x00" + bytes(4) + b"saltsalt\x00" + b"\xff\xf7")
        talk.hear()

    error = await log_in(Thief(stage.key, stops, None), "")
    assert str(error) == "answered nonsense"


async def test_a_plugins_name_is_shown_only_if_it_is_one(stage: Stage) -> None:
    def shouts(thief: Thief, talk: Talk) -> None:
        talk.greet()
        talk.say(b"\xfe\x1b[31mclick http://here\0")
        talk.hear()

    error = await log_in(Thief(stage.key, shouts, None), "")
    assert isinstance(error, TicketDatabaseMisconfigured)
    assert "of no proper name" in str(error)
    assert "click" not in str(error)
