"""URLs of ticket databases, and of the table that a bump starts from."""

import ssl
from pathlib import Path

import pytest

from app.common.errors import SettingsError
from app.databases.engines import read_source
from app.databases.mysql.line.url import DatabaseURL, SslMode
from app.databases.mysql.other_tables import Column
from tests.fakes.certificates import Authority

SECRET = "s3cret-never-shown"


def test_a_plain_url() -> None:
    url = DatabaseURL.parse(f"mysql://tickets:{SECRET}@db1.example/tickets")
    assert (url.host, url.port, url.user, url.database, url.password) == (
        "db1.example",
        3306,
        "tickets",
        "tickets",
        SECRET,
    )
    assert url.name == "db1.example:3306"
    assert url.ssl_mode is SslMode.PREFERRED
    assert not url.wants_tls


def test_percent_encoding_and_odd_passwords() -> None:
    url = DatabaseURL.parse("mysql://us%40er:p%2Fa%23s%25s%20%C3%BC@h:3307/my%2Ddb")
    assert (url.user, url.password, url.database) == ("us@er", "p/a#s%s ü", "my-db")
    assert DatabaseURL.parse("mysql://u:a@b@h/d").password == "a@b"
    assert DatabaseURL.parse("mysql://u:@h/d", "default").password == ""
    assert DatabaseURL.parse("mysql://u@h/d", "default").password == "default"


def test_an_ipv6_address_is_named_in_brackets() -> None:
    url = DatabaseURL.parse("mysql://u@[::1]:3307/d")
    assert (url.host, url.port, url.name) == ("::1", 3307, "[::1]:3307")


@pytest.mark.parametrize(
    ("mode", "verifies", "checks_the_name"),
    [
        ("preferred", False, False),
        ("REQUIRED", False, False),
        ("VERIFY_CA", True, False),
        ("VERIFY_IDENTITY", True, True),
    ],
)
def test_ssl_modes_mean_what_mysql_means(
    mode: str, verifies: bool, checks_the_name: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_context = ssl.create_default_context

    def make_strict_context(*, cafile: str | None) -> ssl.SSLContext:  # as Python does from 3.13 on
        context = make_context(cafile=cafile)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", make_strict_context)
    url = DatabaseURL.parse(f"mysql://u@h/d?ssl-mode={mode}")
    context = url.ssl_context()
    assert context is not None
    assert (context.verify_mode is ssl.CERT_REQUIRED) == verifies
    assert context.check_hostname == checks_the_name
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert url.wants_tls == (mode != "preferred")


@pytest.mark.parametrize(
    ("query", "mode"),
    [
        ("", SslMode.VERIFY_CA),
        ("&ssl-mode=PREFERRED", SslMode.VERIFY_CA),
        ("&ssl-mode=required", SslMode.VERIFY_CA),
        ("&ssl-mode=VERIFY_CA", SslMode.VERIFY_CA),
        ("&ssl-mode=VERIFY_IDENTITY", SslMode.VERIFY_IDENTITY),
    ],
)
def test_an_authority_that_is_named_verifies_whatever_the_mode(query: str, mode: SslMode, tmp_path: Path) -> None:
    url = DatabaseURL.parse(f"mysql://u@h/d?ssl-ca={Authority(tmp_path, 'authority').file}{query}")
    assert url.ssl_mode is mode
    assert url.verifies
    assert url.wants_tls
    context = url.ssl_context()
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert len(context.get_ca_certs()) == 1


def test_a_public_key_is_taken_only_where_the_url_says_so() -> None:
    assert not DatabaseURL.parse("mysql://u@h/d").get_server_public_key
    assert not DatabaseURL.parse("mysql://u@h/d?get-server-public-key=false").get_server_public_key
    assert DatabaseURL.parse("mysql://u@h/d?get-server-public-key=TRUE").get_server_public_key


def test_ssl_mode_disabled_is_plain_text() -> None:
    assert DatabaseURL.parse("mysql://u@h/d?ssl-mode=DISABLED").ssl_context() is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "begin with mysql://"),
        (f"postgres://u:{SECRET}@h/d", "begin with mysql://"),
        (f"mysql://:{SECRET}@h/d", "name a user and a host"),
        ("mysql://h/d", "name a user and a host"),
        (f"mysql://u:{SECRET}@:3306/d", "name a user and a host"),
        (f"mysql://u:{SECRET}@h:99999/d", "host or port"),
        (f"mysql://u:{SECRET}@h:0/d", "cannot be 0"),
        (f"mysql://u:{SECRET}@[::1/d", "host or port"),
        (f"mysql://u:{SECRET}@h", "one database"),
        (f"mysql://u:{SECRET}@h/", "one database"),
        (f"mysql://u:{SECRET}@h/a/b", "one database"),
        (f"mysql://u:{SECRET}@h/d#f", "'#'"),
        (f"mysql://u:{SECRET}@h/d?charset=utf8", "charset"),
        (f"mysql://u:{SECRET}@h/d?ssl-mode=YES", "ssl-mode YES"),
        (f"mysql://u:{SECRET}@h/d?ssl-ca=", "empty ssl-ca"),
        (f"mysql://u:{SECRET}@h/d?ssl-cert=&ssl-key=k", "empty ssl-cert"),
        (f"mysql://u:{SECRET}@h/d?ssl-key=k", "ssl-key and no ssl-cert"),
        (f"mysql://u:{SECRET}@h/d?ssl-mode=VERIFY_IDENTITY&ssl-mode=DISABLED", "ssl-mode more than once"),
        (f"mysql://u:{SECRET}@h/d?ssl-ca=f&ssl-mode=DISABLED", "has an ssl-ca, which verifies"),
        (f"mysql://u:{SECRET}@h/d?get-server-public-key=yes", "neither true nor false"),
    ],
)
def test_what_is_no_url_says_so_and_keeps_the_secret(text: str, says: str) -> None:
    with pytest.raises(SettingsError) as caught:
        DatabaseURL.parse(text)
    assert says in str(caught.value)
    assert SECRET not in str(caught.value)


def test_files_that_are_no_certificates() -> None:
    with pytest.raises(SettingsError, match="TLS files of h:3306 cannot be used: No such file"):
        DatabaseURL.parse("mysql://u@h/d?ssl-mode=VERIFY_CA&ssl-ca=/nowhere").ssl_context()
    with pytest.raises(SettingsError, match="TLS files of h:3306 cannot be used"):
        DatabaseURL.parse(f"mysql://u@h/d?ssl-ca={__file__}").ssl_context()


def test_a_repr_has_no_password() -> None:
    assert SECRET not in repr(DatabaseURL.parse(f"mysql://u:{SECRET}@h/d?ssl-cert=c&ssl-key=/{SECRET}"))


# --- the table that a bump starts from -----------------------------------------------------------------------------


def test_a_column() -> None:
    column = Column.parse(f"mysql://u:{SECRET}@h:3307/shop/old%20photos.id?ssl-mode=REQUIRED")
    assert (column.url.database, column.table, column.column) == ("shop", "old photos", "id")
    assert column.url.wants_tls
    assert column.name == "h:3307/shop/old photos.id"
    assert Column.parse(f"mysql://u:{SECRET}@h/shop/photos.id", "from a file").url.password == "from a file"


@pytest.mark.parametrize(
    "text",
    [
        f"mysql://u:{SECRET}@h/photos.id",
        f"mysql://u:{SECRET}@h/shop/photos",
        f"mysql://u:{SECRET}@h/shop/.id",
        f"mysql://u:{SECRET}@h/shop/photos.",
        f"mysql://u:{SECRET}@h/a/b/photos.id",
        f"mysql://u:{SECRET}@h:x/shop/photos.id",
        f"oracle://u:{SECRET}@h/shop/photos.id",
        "photos.id",
    ],
)
def test_what_is_no_column_says_what_is_wanted(text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_source(text, None)
    assert "expected mysql://user:password@host:port/database/table.column" in str(caught.value)
    assert SECRET not in str(caught.value)
