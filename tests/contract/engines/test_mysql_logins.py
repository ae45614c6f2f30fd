"""Logins on a real MySQL or MariaDB, in each mode, when it has to have the password: its cache was emptied before."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence

import pytest

from app.common.errors import TicketDatabaseError, TicketDatabaseMisconfigured, TicketDatabaseUnavailable
from app.databases.mysql.line.connection import MySQLConnection
from app.databases.mysql.line.url import DatabaseURL
from tests.fakes.certificates import Authority
from tests.harness.commands import ticketd
from tests.harness.engine import Engine
from tests.harness.mysqld import TicketMySQL
from tests.harness.schema import LEAST_PRIVILEGES, PASSWORD, SCHEMA, USER

SECONDS = 30
LOOP: list[asyncio.Runner] = []
NO_TLS = ["--loose-skip-ssl", "--loose-tls-version="]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "authority")


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that has signed nothing here."""
    return Authority(tmp_path_factory.mktemp("strange"), "strange")


@pytest.fixture(scope="module")
def server(engine: Engine, authority: Authority) -> Iterator[TicketMySQL]:
    """A database with a certificate for 127.0.0.1."""
    certificate, key = authority.certificate("127.0.0.1")
    flags = [f"--ssl-ca={authority.file}", f"--ssl-cert={certificate}", f"--ssl-key={key}"]
    with TicketMySQL(engine, flags=flags) as made:
        yield made


@pytest.fixture(scope="module")
def plain(engine: Engine) -> Iterator[TicketMySQL]:
    """A database without TLS."""
    with TicketMySQL(engine, flags=NO_TLS) as made:
        yield made


@pytest.fixture(scope="module", autouse=True)
def loop() -> Iterator[None]:
    """One loop for all: TLS takes a while to hang up, and a loop that has ended would leave it half done."""
    with asyncio.Runner() as runner:
        LOOP.append(runner)
        yield
        runner.run(asyncio.sleep(0.1))
        LOOP.clear()


def log_in(server: TicketMySQL, query: str, *, user: str = USER) -> bool:
    """Log in, look at the facts, and hang up; whether it went through TLS."""
    url = DatabaseURL.parse(server.url_of(SCHEMA, query=query).replace(f"//{USER}:", f"//{user}:"))

    async def opened() -> bool:
        connection = MySQLConnection(url, 2, 1, url.ssl_context())
        async with asyncio.timeout(SECONDS):
            facts = await connection.open()
            await connection.say_goodbye()
        return facts.tls

    return LOOP[0].run(opened())


def forget(server: TicketMySQL) -> None:
    """Have it forget whom it knows, so that the next login is a full one."""
    server.execute("FLUSH PRIVILEGES", database=None)


def refused(server: TicketMySQL, query: str, *, user: str = USER) -> TicketDatabaseError:
    with pytest.raises(TicketDatabaseError) as caught:
        log_in(server, query, user=user)
    assert PASSWORD not in str(caught.value)
    return caught.value


MODES = [
    ("", True),
    ("?ssl-mode=REQUIRED", True),
    ("?ssl-ca={ca}", True),
    ("?ssl-mode=REQUIRED&ssl-ca={ca}", True),
    ("?ssl-mode=VERIFY_CA&ssl-ca={ca}", True),
    ("?ssl-mode=VERIFY_IDENTITY&ssl-ca={ca}", True),
    ("?ssl-mode=DISABLED&get-server-public-key=true", False),
]


@pytest.mark.parametrize(("query", "tls"), MODES)
def test_a_full_login_and_a_cached_one(server: TicketMySQL, authority: Authority, query: str, tls: bool) -> None:
    forget(server)
    assert log_in(server, query.format(ca=authority.file)) == tls
    assert log_in(server, query.format(ca=authority.file)) == tls
    assert log_in(server, "?ssl-mode=DISABLED") is False  # by the hash alone


@pytest.mark.parametrize("mode", ["", "&ssl-mode=REQUIRED", "&ssl-mode=VERIFY_CA", "&ssl-mode=VERIFY_IDENTITY"])
def test_who_is_signed_by_another_authority_is_told_nothing(
    server: TicketMySQL, plain: TicketMySQL, strange: Authority, mode: str
) -> None:
    error = refused(server, f"?ssl-ca={strange.file}{mode}")
    assert isinstance(error, TicketDatabaseUnavailable)
    assert "could not agree on TLS" in str(error)
    url = server.url_of(SCHEMA, query=f"?ssl-ca={strange.file}{mode}")
    doctor = ticketd("doctor", settings={"TICKETS_DATABASES": url})
    assert "To fix it: let ssl-ca in its URL be the authority that signed its certificate" in doctor.output
    error = refused(plain, f"?ssl-ca={strange.file}{mode}")
    assert isinstance(error, TicketDatabaseMisconfigured)
    assert "does not use TLS" in str(error)


def test_a_certificate_for_another_name_will_do_for_verify_ca_alone(engine: Engine, authority: Authority) -> None:
    certificate, key = authority.certificate("127.0.0.9")
    flags = [f"--ssl-ca={authority.file}", f"--ssl-cert={certificate}", f"--ssl-key={key}"]
    with TicketMySQL(engine, flags=flags) as other:
        forget(other)
        assert log_in(other, f"?ssl-mode=VERIFY_CA&ssl-ca={authority.file}") is True
        assert "could not agree on TLS" in str(refused(other, f"?ssl-mode=VERIFY_IDENTITY&ssl-ca={authority.file}"))


@pytest.mark.parametrize("query", ["", "?ssl-mode=DISABLED"])
def test_without_tls_a_full_login_needs_leave_to_take_the_servers_key(plain: TicketMySQL, query: str) -> None:
    forget(plain)
    if not plain.engine.is_mariadb:
        error = refused(plain, query)
        assert isinstance(error, TicketDatabaseMisconfigured)
        assert "get-server-public-key=true" in str(error)
        doctor = ticketd("doctor", settings={"TICKETS_DATABASES": plain.url_of(SCHEMA, query=query)})
        assert doctor.status == 1
        assert "asks for the password without TLS" in doctor.output
        assert "To fix it: set ssl-mode=VERIFY_IDENTITY and ssl-ca in its URL" in doctor.output
    assert log_in(plain, "?get-server-public-key=true") is False
    assert log_in(plain, query) is False


@contextlib.contextmanager
def account(server: TicketMySQL, plugin: str) -> Iterator[str]:
    """Somebody who logs in by this plugin."""
    by = f"VIA {plugin} USING PASSWORD('{PASSWORD}')" if server.engine.is_mariadb else f"WITH {plugin} BY '{PASSWORD}'"
    statements: Sequence[str] = [
        f"CREATE USER other@'127.0.0.1' IDENTIFIED {by}",
        f"GRANT {LEAST_PRIVILEGES} ON `{SCHEMA}`.* TO other@'127.0.0.1'",
    ]
    for statement in statements:
        server.execute(statement, database=None)
    yield "other"
    server.execute("DROP USER other@'127.0.0.1'", database=None)


def test_an_account_that_logs_in_by_another_plugin(server: TicketMySQL) -> None:
    """The server asks for it by a switch; on MariaDB it is the one that it greets with."""
    plugin = "mysql_native_password" if server.engine.is_mariadb else "sha256_password"
    with account(server, plugin) as user:
        assert log_in(server, "", user=user) is True
        assert log_in(server, "?ssl-mode=DISABLED&get-server-public-key=true", user=user) is False
        if not server.engine.is_mariadb:
            assert "get-server-public-key=true" in str(refused(server, "?ssl-mode=DISABLED", user=user))


def test_the_doctor_says_of_each_database_what_is_not_verified(
    server: TicketMySQL, plain: TicketMySQL, authority: Authority
) -> None:
    said = {
        server.url_of(SCHEMA): "its certificate is not verified (ssl-mode=PREFERRED)",
        server.url_of(SCHEMA, query=f"?ssl-ca={authority.file}"): "the name in its certificate is not verified",
        plain.url_of(SCHEMA, query="?get-server-public-key=true"): "its connection is not encrypted",
    }
    for url, note in said.items():
        assert f": {note}" in ticketd("doctor", settings={"TICKETS_DATABASES": url}).output
    verified = server.url_of(SCHEMA, query=f"?ssl-mode=VERIFY_IDENTITY&ssl-ca={authority.file}")
    assert "verified" not in ticketd("doctor", settings={"TICKETS_DATABASES": verified}).output
