"""The URL of a PostgreSQL ticket database: libpq's words, and errors that never repeat a secret."""

import ssl
from pathlib import Path

import pytest

from app.databases.postgresql.url import parse
from app.errors import SettingsError

SECRET = "s3cr:et@/?#"
ESCAPED = "s3cr%3Aet%40%2F%3F%23"


def test_a_url_says_where_the_database_is_and_how_to_log_in() -> None:
    address = parse(f"postgresql://us%40er:{ESCAPED}@db1:6432/tick%20ets?application_name=x", "unused")
    assert (address.user, address.password, address.host, address.port) == ("us@er", SECRET, "db1", 6432)
    assert (address.name, address.database, address.application_name) == ("db1:6432", "tick ets", "x")
    assert SECRET not in repr(address)
    address = parse("postgres://u@[::1]/d", "default")
    assert (address.name, address.password, address.application_name) == ("[::1]:5432", "default", "ticketd")


@pytest.mark.parametrize(
    ("words", "mode"),
    [
        ("", "prefer"),
        ("?sslmode=disable", "disable"),
        ("?sslmode=allow", "allow"),
        ("?sslmode=require", "require"),
        ("?sslmode=require&sslrootcert=ca.pem&sslcrl=crl.pem", "verify-ca"),
        ("?sslmode=verify-ca&sslrootcert=ca.pem", "verify-ca"),
        ("?sslmode=verify-full&sslrootcert=ca.pem", "verify-full"),
        ("?sslrootcert=system", "verify-full"),
        ("?sslmode=verify-full&sslrootcert=system&channel_binding=prefer", "verify-full"),
        ("?channel_binding=disable", "prefer"),
    ],
)
def test_sslmode_means_what_libpq_means(words: str, mode: str) -> None:
    assert parse(f"postgresql://u@h/d{words}").sslmode == mode


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("target_session_attrs=any", "the option target_session_attrs"),
        ("options=-c%20fsync=off", "the option options"),
        ("passfile=x", "the option passfile"),
        ("sslkey=f", "sslkey and no sslcert"),
        ("sslmode=VERIFY", "which is not one of disable, allow"),
        ("sslmode=verify-full", "no sslrootcert"),
        ("sslrootcert=ca.pem", "an sslrootcert, and an sslmode that verifies nothing"),
        ("sslmode=require&sslcrl=f", "an sslcrl, and an sslmode that verifies nothing"),
        ("sslmode=verify-ca&sslrootcert=system", "wants sslmode=verify-full"),
        ("sslmode=require&sslrootcert=system", "wants sslmode=verify-full"),
        ("channel_binding=require", "cannot do"),
        ("channel_binding=maybe", "not one of disable"),
    ],
)
def test_words_that_libpq_does_not_know_or_that_protect_nothing_are_refused(words: str, complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint) as wrong:
        parse(f"postgresql://u:{ESCAPED}@h/d?{words}")
    assert "s3cr" not in str(wrong.value)


def test_files_that_cannot_be_used_are_said(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("none")
    for words in (
        f"sslmode=verify-full&sslrootcert={tmp_path / 'missing.pem'}",
        f"sslmode=verify-full&sslrootcert={tmp_path / 'no.pem'}",
        f"sslmode=require&sslcert={tmp_path / 'no.pem'}",
    ):
        with pytest.raises(SettingsError, match="the TLS files of h:5432 cannot be used"):
            parse(f"postgresql://u@h/d?{words}").tls()


def test_the_context_verifies_what_the_mode_asks_for() -> None:
    assert parse("postgresql://u@h/d?sslmode=disable").tls() is None
    for words, verifies in (("sslmode=prefer", ssl.CERT_NONE), ("sslrootcert=system", ssl.CERT_REQUIRED)):
        context = parse(f"postgresql://u@h/d?{words}").tls()
        assert context is not None
        assert (context.verify_mode, context.check_hostname) == (verifies, verifies is ssl.CERT_REQUIRED)
