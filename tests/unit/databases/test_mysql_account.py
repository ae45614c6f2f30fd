"""What a server says of an account, read; and which of its limits are too low."""

import pytest

from app.databases.mysql.account import Account, account_of, flaws_of, remarks_on

MYSQL = (
    "CREATE USER `tic``ket`@`%` IDENTIFIED WITH 'caching_sha2_password' AS '$A$\\'PASSWORD EXPIRE INTERVAL 1 DAY' "
    "REQUIRE NONE{limits} PASSWORD EXPIRE {expire} ACCOUNT UNLOCK PASSWORD HISTORY DEFAULT "
    "PASSWORD REUSE INTERVAL DEFAULT COMMENT 'MAX_QUERIES_PER_HOUR 3'"
)
MARIADB = "CREATE USER `ticketd`@`127.0.0.1` IDENTIFIED BY PASSWORD '*C022'{limits}"


@pytest.mark.parametrize(
    ("expire", "default", "days"),
    [("DEFAULT", 0, None), ("DEFAULT", 90, 90), ("NEVER", 90, None), ("INTERVAL 30 DAY", 0, 30)],
)
def test_when_a_password_expires(expire: str, default: int, days: int | None) -> None:
    assert account_of("a@b", MYSQL.format(limits="", expire=expire), default, 0).days == days
    clause = "" if expire == "DEFAULT" else f" PASSWORD EXPIRE {expire}"
    assert account_of("a@b", MARIADB.format(limits=clause), default, 0).days == days


def test_limits_and_nothing_that_stands_in_a_text() -> None:
    limits = " WITH MAX_QUERIES_PER_HOUR 5 MAX_UPDATES_PER_HOUR 7 MAX_CONNECTIONS_PER_HOUR 0 MAX_USER_CONNECTIONS 9"
    for definition in (MYSQL.format(limits=limits, expire="NEVER"), MARIADB.format(limits=limits)):
        found = account_of("tic'ket@10.%", definition, 0, 4)
        assert found == Account(
            "'tic''ket'@'10.%'", {"MAX_QUERIES_PER_HOUR": 5, "MAX_UPDATES_PER_HOUR": 7}, 9, True, None
        )
    none = account_of("a@b", MYSQL.format(limits="", expire="NEVER"), 0, 4)
    assert none == Account("'a'@'b'", {}, 4, False, None)


@pytest.mark.parametrize(
    ("connections", "servers", "wrong"), [(0, 9, False), (13, 0, False), (12, 0, True), (38, 3, True), (39, 3, False)]
)
def test_each_server_needs_its_connections(connections: int, servers: int, wrong: bool) -> None:
    account = Account("'a'@'b'", {}, connections, True, None)
    assert bool(list(flaws_of(account, None, servers))) is wrong
    assert bool(list(remarks_on(account))) is (connections > 0)


def test_a_limit_of_all_accounts_is_raised_for_this_one() -> None:
    (flaw,) = flaws_of(Account("'a'@'b'", {}, 5, False, None), None, 2)
    assert flaw.fix.startswith("ALTER USER 'a'@'b' WITH MAX_USER_CONNECTIONS 26, or raise max_user_connections")


def test_the_day_of_the_end_where_it_is_known() -> None:
    account = Account("'a'@'b'", {}, 0, False, 90)
    (known,) = flaws_of(account, 1_700_000_000.0, 1)
    assert "expire at 2024-02-12 22:13 UTC, 90 days" in known.wrong
    (unknown,) = flaws_of(account, None, 1)
    assert "90 days after it was last changed (when that was, the account may not read)" in unknown.wrong
