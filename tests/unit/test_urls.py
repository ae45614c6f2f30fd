"""The list of ticket databases, and the URL of one on each engine: its own words, and no secret in an error."""

import ssl
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from app.databases.address import TLS
from app.databases.engines import parse_list
from app.errors import SettingsError

SECRET, ESCAPED = "s3cr:et@/?#", "s3cr%3Aet%40%2F%3F%23"
NO_SECRET = "(?s)(?!.*(s3cr|%E8))"


def parse(url: str, default_password: str | None = None) -> Any:
    (address,) = parse_list(url, default_password)
    return address


@pytest.mark.parametrize("between", [" ", ",", ", ", "\n", " , "])
def test_urls_are_separated_by_white_space_or_by_a_comma_before_a_scheme(between: str) -> None:
    first, second = parse_list(f" {between.join(('postgresql://u:own@a/d', 'POSTGRES://u@b:7/d'))}\n", "given")
    assert (first.name, first.password, second.name, second.password) == ("a:5432", "own", "b:7", "given")


SAID = {
    f"mysql://us%40er:{ESCAPED}@Db.example:3307/tick%20ets?ssl-mode=verify_identity&ssl-ca=/a%20b.pem": (
        *("db.example:3307", "us@er", SECRET, "tick ets", TLS(ca="/a b.pem"), "VERIFY_IDENTITY", False),
    ),
    "mysql://u@[::1]/d": ("[::1]:3306", "u", "given", "d", TLS(False, False), "PREFERRED", False),
    "postgresql://u:s3@db1:6/d?application_name=x&sslmode=disable": ("db1:6", "u", "s3", "d", None, "disable", "x"),
    "postgres://u@[::1]/d": ("[::1]:5432", "u", "given", "d", TLS(False, False), "prefer", "ticketd"),
    "redis://h/3": ("h:6379", "default", "given", "3", None, None, None),
    f"rediss://u:{ESCAPED}@[::1]:7/0?ssl_ca_certs=/ca": ("[::1]:7", "u", SECRET, "0", TLS(ca="/ca"), None, None),
    "redis+sentinel://u:own@s1/g/2?sentinel_password=s3cret": ("s1:26379", "u", "own", "2", None, "g", "s3cret"),
}
"""URLs, and the name, the user, the password and the database that they say, and what is after these in an address."""


@pytest.mark.parametrize("url", SAID)
def test_a_url_says_where_the_database_is_and_how_to_log_in(url: str) -> None:
    address = parse(url, "given")
    *_, tls, one, other = (getattr(address, each.name) for each in fields(address))
    assert (address.name, address.user, address.password, address.database, tls, one, other) == SAID[url]
    assert "s3cr" not in repr(address)


@pytest.mark.parametrize("url", ["mysql://u:p@h1:1,[::1]:3306,h3:3/d", "redis+sentinel://u:p@h1:1,[::1]:3306,h3:3/g/0"])
def test_a_url_of_several_nodes_has_an_address_for_each(url: str) -> None:
    address = parse(url)
    assert address.name == "h1:1"
    nodes = [(each.name, each.password) for each in address.nodes]
    assert nodes == [("h1:1", "p"), ("[::1]:3306", "p"), ("h3:3", "p")]


WRONG = {
    "begin with mysql:// or|no URL": "\n mysq://u:s3cret@a/d mysql:s3cret",
    "user and a host": "mysql://h/d",
    "one database": "mysql://u@h/d/e mysql://u@h redis://h",
    "port": "mysql://u@h:0/d mysql://u@h:x/d",
    "percent-encode": "mysql://u:s3cr/b@h/d mysql://u:s3cr#b@h/d",
    "names a node twice": "mysql://u@h1:1,h2,h1:1/d",
    "comma": "mysql://u@h/d,e mysql://u:s3cr@h/d,",
    "%23": "mysql://u@h/d#x",
    "password in the URL of h:3306 is not UTF-8": "mysql://u:%E8@h/d mysql://u:\udce8@h/d",
    "NUL": "mysql://u:s3cr%00b@h/d",
    "option sslmode": "mysql://u@h/d?sslmode=x",
    "empty ssl-ca": "mysql://u@h/d?ssl-ca=",
    "more than once": "mysql://u@h/d?ssl-ca=a&ssl-ca=b",
    "MAYBE": "mysql://u@h/d?ssl-mode=maybe",
    "ssl-key and no ssl-cert": "mysql://u@h/d?ssl-key=a",
    "DISABLED": "mysql://u@h/d?ssl-ca=a&ssl-mode=DISABLED",
    "neither true nor false": "mysql://u@h/d?get-server-public-key=yes",
    "the option options": "postgresql://u@h/d?options=-c%20fsync=off",
    "which is not one of disable, allow": "postgresql://u@h/d?sslmode=VERIFY",
    "no sslrootcert": "postgresql://u@h/d?sslmode=verify-full",
    "an sslrootcert, and an sslmode that verifies nothing": "postgresql://u@h/d?sslrootcert=ca.pem",
    "an sslcrl, and an sslmode that verifies nothing": "postgresql://u@h/d?sslmode=require&sslcrl=f",
    "wants sslmode=verify-full": "postgresql://u@h/d?sslmode=verify-ca&sslrootcert=system",
    "cannot do: use sslmode=verify-full": "postgresql://u@h/d?channel_binding=require",
    "number of a database": "redis://h/tickets",
    "option ssl_ca_certs": "redis://h/0?ssl_ca_certs=x",
    "several servers": "redis://h1,h2/0",
    "a group and one database": "redis+sentinel://h1/0",
}


@pytest.mark.parametrize("words", WRONG)
def test_a_url_that_cannot_be_used_is_refused_without_its_password(words: str) -> None:
    for url in WRONG[words].split(" "):
        with pytest.raises(SettingsError, match=f"{NO_SECRET}.*({words})"):
            parse(url)


def test_the_words_for_tls_mean_what_mysqls_client_and_libpq_mean() -> None:
    for words, mode, verifies in (
        ("", "prefer", False),
        ("?sslmode=require", "require", False),
        ("?sslrootcert=system", "verify-full", True),
    ):
        address = parse(f"postgresql://u@h/d{words}")
        context = address.tls_context()
        found = address.sslmode, context.verify_mode is ssl.CERT_REQUIRED, context.check_hostname
        assert found == (mode, verifies, verifies)
    for url in ("postgresql://u@h/d?sslmode=disable&channel_binding=disable", "mysql://u@h/d?ssl-mode=DISABLED"):
        assert parse(url).tls_context() is None
    # an authority always verifies
    assert parse("postgresql://u@h/d?sslmode=require&sslrootcert=ca.pem&sslcrl=crl.pem").sslmode == "verify-ca"
    for mode in ("", "&ssl-mode=REQUIRED"):
        assert parse(f"mysql://u@h/d?ssl-ca=x{mode}").ssl_mode == "VERIFY_CA"


def test_files_that_cannot_be_used_are_said(tmp_path: Path) -> None:
    (none := tmp_path / "no.pem").write_text("none")
    root = "sslmode=verify-full&sslrootcert="
    for words in (f"{root}{tmp_path / 'missing.pem'}", f"{root}{none}", f"sslmode=require&sslcert={none}"):
        with pytest.raises(SettingsError, match="the TLS files of h:5432 cannot be used"):
            parse(f"postgresql://u@h/d?{words}").tls_context()
