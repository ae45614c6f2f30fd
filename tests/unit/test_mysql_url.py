"""The URL of a MySQL ticket database."""

import re

import pytest

from app.databases.address import TLS
from app.databases.mysql.url import parse
from app.errors import SettingsError


def test_a_url_is_read() -> None:
    address = parse("mysql://us%40er:p%2Fa%3Ass@Db.example:3307/tick%20ets?ssl-mode=verify_identity&ssl-ca=/a%20b.pem")
    assert (address.host, address.port, address.user) == ("db.example", 3307, "us@er")
    assert (address.password, address.database) == ("p/a:ss", "tick ets")
    assert (address.ssl_mode, address.tls) == ("VERIFY_IDENTITY", TLS(ca="/a b.pem"))
    assert "p/a:ss" not in repr(address)
    address = parse("mysql://u@[::1]/d", "secret")
    assert (address.name, address.password, address.ssl_mode) == ("[::1]:3306", "secret", "PREFERRED")
    assert not address.get_server_public_key
    assert parse("mysql://u:own@h/d", "secret").password == "own"
    for mode in ("", "&ssl-mode=PREFERRED", "&ssl-mode=REQUIRED"):  # an authority always verifies
        assert parse(f"mysql://u@h/d?ssl-ca=x{mode}").ssl_mode == "VERIFY_CA"


@pytest.mark.parametrize(
    ("urls", "words"),
    [
        ("postgresql://u@h/d", "begin with mysql://"),
        ("mysql://h/d", "user and a host"),
        ("mysql://u@h mysql://u@h/d/e", "one database"),
        ("mysql://u@h:0/d mysql://u@h:x/d", "port"),
        ("mysql://u:a/b@h/d mysql://u:a#b@h/d", "percent-encode"),
        ("mysql://u@h1:1,h2,h1:1/d", "names a node twice"),
        ("mysql://u@h/d,e", "comma"),
        ("mysql://u@h/d#x", "%23"),
        ("mysql://u:%E8@h/d mysql://u:\udce8@h/d", "password in the URL of h:3306 is not UTF-8"),
        ("mysql://u:a%00b@h/d", "NUL"),
        ("mysql://u@h/d?sslmode=x", "option sslmode"),
        ("mysql://u@h/d?ssl-ca=", "empty ssl-ca"),
        ("mysql://u@h/d?ssl-ca=a&ssl-ca=b", "more than once"),
        ("mysql://u@h/d?ssl-mode=maybe", "MAYBE"),
        ("mysql://u@h/d?ssl-key=a", "no ssl-cert"),
        ("mysql://u@h/d?ssl-ca=a&ssl-mode=DISABLED", "DISABLED"),
        ("mysql://u@h/d?get-server-public-key=yes", "neither true nor false"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_password(urls: str, words: str) -> None:
    for url in urls.split():
        with pytest.raises(SettingsError, match=words) as caught:
            parse(url)
        assert not re.search("a/b|a#b|%E8", str(caught.value))


def test_files_of_tls_that_cannot_be_read_are_named() -> None:
    with pytest.raises(SettingsError, match="TLS files of h:3306"):
        parse("mysql://u@h/d?ssl-ca=/nowhere").tls_context()
    assert parse("mysql://u@h/d?ssl-mode=DISABLED").tls_context() is None


def test_a_url_of_several_nodes_has_an_address_for_each() -> None:
    address = parse("mysql://u:p@h1:1,[::1],h3:3/d")
    assert address.name == "h1:1"
    assert [each.name for each in address.nodes] == ["h1:1", "[::1]:3306", "h3:3"]
    assert {each.password for each in address.nodes} == {"p"}
