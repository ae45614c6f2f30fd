"""The list of ticket databases, and the URL of one on PostgreSQL: libpq's words, and no secret in an error."""

import ssl
from pathlib import Path

import pytest

from app.databases.engines import parse_list
from app.databases.postgresql.url import parse
from app.errors import SettingsError

SECRET = "s3cr:et@/?#"
ESCAPED = "s3cr%3Aet%40%2F%3F%23"


@pytest.mark.parametrize("between", [" ", ",", ", ", "\n", " , "])
def test_urls_are_separated_by_white_space_or_by_a_comma_before_a_scheme(between: str) -> None:
    first, second = parse_list(f" {between.join(('postgresql://u:own@a/d', 'POSTGRES://u@b:7/d'))}\n", "given")
    assert (first.name, first.password, second.name, second.password) == ("a:5432", "own", "b:7", "given")


@pytest.mark.parametrize("text", ["", " ", "mysq://u:secret@a/d", "mysql:secret", "postgresql://u:secret@a/d, b"])
def test_a_list_that_cannot_be_read_is_refused_without_its_secret(text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_list(text, None)
    assert "secret" not in str(caught.value)


def test_a_url_says_where_the_database_is_and_how_to_log_in() -> None:
    address = parse(f"postgresql://u:{ESCAPED}@db1:6432/d?application_name=x", "unused")
    assert (address.name, address.password, address.application_name) == ("db1:6432", SECRET, "x")
    assert SECRET not in repr(address)
    address = parse("postgres://u@[::1]/d", "default")
    assert (address.name, address.password, address.application_name) == ("[::1]:5432", "default", "ticketd")


def test_sslmode_means_what_libpq_means() -> None:
    for words, mode, verifies in (
        ("", "prefer", ssl.CERT_NONE),
        ("?sslmode=allow", "allow", ssl.CERT_NONE),
        ("?sslmode=require", "require", ssl.CERT_NONE),
        ("?sslrootcert=system", "verify-full", ssl.CERT_REQUIRED),
        ("?sslmode=verify-full&sslrootcert=system&channel_binding=prefer", "verify-full", ssl.CERT_REQUIRED),
    ):
        address = parse(f"postgresql://u@h/d{words}")
        context = address.tls_context()
        assert context is not None
        found = address.sslmode, context.verify_mode, context.check_hostname
        assert found == (mode, verifies, verifies is ssl.CERT_REQUIRED)
    assert parse("postgresql://u@h/d?sslmode=disable&channel_binding=disable").tls_context() is None
    for words in ("sslmode=require&sslrootcert=ca.pem&sslcrl=crl.pem", "sslmode=verify-ca&sslrootcert=ca.pem"):
        assert parse(f"postgresql://u@h/d?{words}").sslmode == "verify-ca"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("options=-c%20fsync=off", "the option options"),
        ("sslkey=f", "sslkey and no sslcert"),
        ("sslmode=VERIFY", "which is not one of disable, allow"),
        ("sslmode=verify-full", "no sslrootcert"),
        ("sslrootcert=ca.pem", "an sslrootcert, and an sslmode that verifies nothing"),
        ("sslmode=require&sslcrl=f", "an sslcrl, and an sslmode that verifies nothing"),
        ("sslmode=verify-ca&sslrootcert=system", "wants sslmode=verify-full"),
        ("channel_binding=require", "cannot do"),
        ("channel_binding=maybe", "use sslmode=verify-full"),
    ],
)
def test_words_that_libpq_does_not_know_or_that_protect_nothing_are_refused(words: str, complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint) as wrong:
        parse(f"postgresql://u:{ESCAPED}@h/d?{words}")
    assert "s3cr" not in str(wrong.value)


def test_files_that_cannot_be_used_are_said(tmp_path: Path) -> None:
    (none := tmp_path / "no.pem").write_text("none")
    root = "sslmode=verify-full&sslrootcert="
    for words in (f"{root}{tmp_path / 'missing.pem'}", f"{root}{none}", f"sslmode=require&sslcert={none}"):
        with pytest.raises(SettingsError, match="the TLS files of h:5432 cannot be used"):
            parse(f"postgresql://u@h/d?{words}").tls_context()
