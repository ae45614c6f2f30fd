"""The URL of a PostgreSQL ticket database: libpq's words, and errors that never repeat a secret."""

import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from app.common.errors import SettingsError
from app.databases import engines
from app.databases.postgresql.url import PostgreSQLURL, SslMode

SECRET = "s3cr:et@/?#"
ESCAPED = "s3cr%3Aet%40%2F%3F%23"


def test_a_url_says_where_the_database_is_and_how_to_log_in() -> None:
    url = PostgreSQLURL.parse(f"postgresql://us%40er:{ESCAPED}@db1:6432/tick%20ets?application_name=x")
    assert (url.user, url.password, url.host, url.port, url.database) == ("us@er", SECRET, "db1", 6432, "tick ets")
    assert (url.name, url.application_name, url.sslmode) == ("db1:6432", "x", SslMode.PREFER)
    assert SECRET not in repr(url)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "PostgreSQL"])
def test_both_schemes_lead_here(scheme: str) -> None:
    url = engines.read_url(f"{scheme}://u@[::1]/d")
    assert isinstance(url, PostgreSQLURL)
    assert (url.name, url.password, url.application_name) == ("[::1]:5432", None, "ticketd")
    assert url.with_password("p").password == "p"
    assert url.with_password("p").with_password("q").password == "p"


@pytest.mark.parametrize(
    ("words", "mode"),
    [
        ("", SslMode.PREFER),
        ("?sslmode=disable", SslMode.DISABLE),
        ("?sslmode=allow", SslMode.ALLOW),
        ("?sslmode=require", SslMode.REQUIRE),
        ("?sslmode=require&sslrootcert=ca.pem", SslMode.VERIFY_CA),
        ("?sslmode=verify-ca&sslrootcert=ca.pem", SslMode.VERIFY_CA),
        ("?sslmode=verify-full&sslrootcert=ca.pem", SslMode.VERIFY_FULL),
        ("?sslrootcert=system", SslMode.VERIFY_FULL),
        ("?sslmode=verify-full&sslrootcert=system&channel_binding=prefer", SslMode.VERIFY_FULL),
        ("?channel_binding=disable", SslMode.PREFER),
    ],
)
def test_sslmode_means_what_libpq_means(words: str, mode: SslMode) -> None:
    assert PostgreSQLURL.parse(f"postgresql://u@h/d{words}").sslmode is mode


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"postgresql://u:{SECRET}@h/d", "percent-encode"),
        (f"mysql://u:{ESCAPED}@h/d", "has to begin with postgresql://"),
        (f"postgresql://u:{ESCAPED}@h1,h2/d", "several nodes"),
        (f"postgresql://u:{ESCAPED}@h:port/d", "cannot be read"),
        (f"postgresql://u:{ESCAPED}@h:0/d", "cannot be 0"),
        (f"postgresql://:{ESCAPED}@h/d", "name a user and a host"),
        (f"postgresql://u:{ESCAPED}@/d", "name a user and a host"),
        (f"postgresql://u:{ESCAPED}@h", "name one database"),
        (f"postgresql://u:{ESCAPED}@h/d/e", "name one database"),
        (f"postgresql://u:{ESCAPED}@h/d,e", "white space"),
        (f"postgresql://u:{ESCAPED}@h/d#e", "%23"),
        (f"postgresql://u:{ESCAPED}@h/d?target_session_attrs=any", "the option target_session_attrs"),
        (f"postgresql://u:{ESCAPED}@h/d?options=-c%20fsync=off", "the option options"),
        (f"postgresql://u:{ESCAPED}@h/d?passfile=x", "the option passfile"),
        (f"postgresql://u:{ESCAPED}@h/d?sslmode=", "an empty sslmode"),
        (f"postgresql://u:{ESCAPED}@h/d?sslmode=verify-full&sslrootcert=f&sslmode=disable", "sslmode more than once"),
        (f"postgresql://u:{ESCAPED}@h/d?sslmode=require&sslcrl=f", "sslcrl, and an sslmode that verifies nothing"),
        (f"postgresql://u:{ESCAPED}@h/d?sslkey=f", "sslkey and no sslcert"),
        (f"postgresql://u:{ESCAPED}@h/d?sslmode=VERIFY", "which is not one of disable, allow"),
        (f"postgresql://u:{ESCAPED}@h/d?sslmode=verify-full", "no sslrootcert"),
        (f"postgresql://u:{ESCAPED}@h/d?sslrootcert=ca.pem", "verifies nothing"),
        (f"postgresql://u:{ESCAPED}@h/d?sslmode=verify-ca&sslrootcert=system", "only with sslmode=verify-full"),
        (f"postgresql://u:{ESCAPED}@h/d?channel_binding=require", "cannot do"),
        (f"postgresql://u:{ESCAPED}@h/d?channel_binding=maybe", "not one of disable"),
    ],
)
def test_what_is_wrong_is_said_and_the_url_is_not_repeated(text: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words) as wrong:
        PostgreSQLURL.parse(text)
    assert "s3cr" not in str(wrong.value)


def test_files_that_cannot_be_used_are_said_before_the_start(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("none")
    for words in (
        f"sslmode=verify-full&sslrootcert={tmp_path / 'missing.pem'}",
        f"sslmode=verify-full&sslrootcert={tmp_path / 'no.pem'}",
        f"sslmode=require&sslcert={tmp_path / 'no.pem'}",
    ):
        with pytest.raises(SettingsError, match="the TLS files of h:5432 cannot be used"):
            PostgreSQLURL.parse(f"postgresql://u@h/d?{words}").check()


def test_the_context_verifies_what_the_mode_asks_for() -> None:
    def context(words: str) -> ssl.SSLContext | None:
        return PostgreSQLURL.parse(f"postgresql://u@h/d?{words}").ssl_context()

    assert context("sslmode=disable") is None
    for mode in ("allow", "prefer", "require"):
        found = context(f"sslmode={mode}")
        assert found is not None
        assert (found.verify_mode, found.check_hostname) == (ssl.CERT_NONE, False)
    full = context("sslrootcert=system")
    assert full is not None
    assert (full.verify_mode, full.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_a_url_is_refused_in_one_line_where_the_driver_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    url = engines.read_url(f"postgresql://u:{ESCAPED}@h/d")
    with pytest.raises(SettingsError, match=r"pip install 'ticket-server\[postgresql\]'"):
        url.check()
    with pytest.raises(SettingsError, match="asyncpg"):
        engines.make_database(url, 1, 2, 1.0, lambda *_: None)


def test_the_driver_is_not_imported_where_no_database_is_postgresql() -> None:
    script = "import app.service, app.commands.cli, app.doctor.report, sys; sys.exit('asyncpg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0
