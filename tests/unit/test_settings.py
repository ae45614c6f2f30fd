"""The settings: where each value comes from, what stops the start, and that no secret is shown."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import SettingsError
from app.settings import Settings, load, variable

SECRET = "s3cret-never-shown"
URLS = f"mysql://tickets:{SECRET}@db1/tickets, mysql://tickets:{SECRET}@db2:3307/tickets"


def error_of(environment: dict[str, str], flags: dict[str, str | None] | None = None) -> str:
    """Return the line with which these settings stop the start; it never has the secret."""
    with pytest.raises(SettingsError) as caught:
        load(environment, flags or {})
    line = str(caught.value)
    assert "\n" not in line
    assert SECRET not in line
    return line


def test_nothing_set_is_the_embedded_pair_on_loopback_with_the_defaults_of_the_contract() -> None:
    settings = load({}, {})
    assert (settings.is_embedded, settings.is_local) == (True, True)
    assert (settings.host, settings.port, settings.redis_port) == ("127.0.0.1", 8000, None)
    assert (settings.request_timeout, settings.database_timeout, settings.probe_interval) == (2.0, 0.5, 1.0)
    assert (settings.drain_seconds, settings.reserve_seconds, settings.max_connections) == (5.0, 0.0, None)
    assert (settings.unverified, settings.tokens, settings.admin_tokens) == ("serve", (), ())
    assert (settings.data_dir, settings.increment) == (Path("ticket-data"), None)
    assert (settings.log_level, settings.log_format, settings.access_log) == ("info", "text", False)


def test_a_value_comes_from_the_variable_a_file_or_a_flag_which_comes_first(tmp_path: Path) -> None:
    for field, text, value in (
        ("data_dir", "/srv/tickets", Path("/srv/tickets")),
        ("increment", "10", 10),
        ("database_timeout", "0.25", 0.25),
        ("unverified", "Refuse", "refuse"),
        ("access_log", "true", True),
    ):
        (tmp_path / "value").write_text(f" {text}\n")
        assert getattr(load({variable(field): text}, {}), field) == value
        assert getattr(load({variable(field) + "_FILE": str(tmp_path / "value")}, {}), field) == value
        assert getattr(load({variable(field): "nonsense"}, {field: text}), field) == value


def test_databases_tokens_and_the_password_come_from_a_file_too_that_a_flag_may_name(tmp_path: Path) -> None:
    urls, tokens, password = (str(tmp_path / name) for name in ("urls", "tokens", "password"))
    Path(urls).write_text(URLS.replace(", ", "\n") + "\n")
    Path(tokens).write_text(f"{SECRET}\nother\n")
    Path(password).write_text(f" {SECRET} \r\n")
    for settings in (
        load({"TICKETS_DATABASES": URLS, "TICKETS_TOKENS": f"{SECRET}  other"}, {}),
        load({"TICKETS_DATABASES_FILE": urls, "TICKETS_TOKENS_FILE": tokens}, {}),
        load({}, {"databases": urls, "tokens": tokens}),
    ):
        assert {each.name: each.password for each in settings.databases} == {"db1:3306": SECRET, "db2:3307": SECRET}
        assert [each.get_secret_value() for each in settings.tokens] == [SECRET, "other"]
        assert SECRET not in repr(settings)
    one = {"TICKETS_DATABASES": "mysql://one@db1/tickets mysql://two:own@db2/tickets"}
    settings = load(one | {"TICKETS_DATABASE_PASSWORD_FILE": password}, {})
    assert [address.password for address in settings.databases] == [f" {SECRET} ", "own"]


@pytest.mark.parametrize("field", Settings.model_fields)
def test_what_is_set_and_empty_or_set_twice_stops_the_start(field: str, tmp_path: Path) -> None:
    name, file = variable(field), tmp_path / "empty"
    file.write_text(" \n")
    assert error_of({name: " \t"}).startswith(f"{name} is set and empty; expected ")
    assert error_of({name + "_FILE": ""}).startswith(f"{name}_FILE is set and empty; expected ")
    assert "is empty; expected a file with" in error_of({name + "_FILE": str(file)})
    assert error_of({}, {field: ""}).startswith(f"--{field.replace('_', '-')}")
    both = f"{name} and {name}_FILE are both set; expected one of them"
    assert error_of({name: SECRET, name + "_FILE": ""}) == both


def test_a_file_that_cannot_be_read_is_named_unless_a_secret_may_stand_for_its_path(tmp_path: Path) -> None:
    missing, noise = tmp_path / "missing", tmp_path / "noise"
    noise.write_bytes(b"\xff\xfe")
    said = error_of({"TICKETS_PORT_FILE": str(missing)})
    assert f"{str(missing)!r} cannot be read (No such file or directory)" in said
    assert "(not UTF-8)" in error_of({"TICKETS_PORT_FILE": str(noise)})
    assert "(not UTF-8)" in error_of({"TICKETS_TOKENS": f"{SECRET}\udcff"})
    assert "(No such file or directory)" in error_of({"TICKETS_TOKENS_FILE": SECRET})


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ("PORT=65536 PORT=8_000 REDIS_PORT=-1", "a port, 0 to 65535"),
        ("REQUEST_TIMEOUT=0 REQUEST_TIMEOUT=nan DATABASE_TIMEOUT=1e3", "seconds, above 0 and at most 3600"),
        ("PROBE_INTERVAL=5.1", "seconds, above 0 and at most 5,"),
        ("DRAIN_SECONDS=3601 RESERVE_SECONDS=-1", "seconds, 0 to 3600"),
        ("INCREMENT=1 INCREMENT=2.5", "a whole number, from the number of databases to 65535"),
        ("MAX_CONNECTIONS=0", "a whole number, 1 to 1000000"),
        ("UNVERIFIED=maybe", "serve, or with two databases or more refuse"),
        ("LOG_FORMAT=xml", "text or json"),
        ("ACCESS_LOG=perhaps", "true or false"),
    ],
)
def test_a_value_that_cannot_be_used_stops_with_what_is_wanted(settings: str, wanted: str) -> None:
    for setting in settings.split():
        name, _, value = setting.partition("=")
        line = error_of({f"TICKETS_{name}": value})
        assert line.startswith(f"TICKETS_{name} is {value!r}; expected {wanted}")


ONE = URLS.partition(",")[0]
URLS_WANTED = "; expected URLs of the ticket databases in the order of their offsets"


def test_other_mistakes_stop_the_start_as_well() -> None:
    assert error_of({"TICKETS_PORT": URLS}).startswith("TICKETS_PORT cannot be used; expected a port")
    assert error_of({"TICKETS_TOKENS": f"tcp://{SECRET}"}).startswith("TICKETS_TOKENS cannot be used; expected ")
    three = {"TICKETS_INCREMENT": "2", "TICKETS_DATABASES": f"{URLS} mysql://u@db3/d"}
    assert error_of(three).startswith("TICKETS_INCREMENT is '2'; expected ")
    alone = {"TICKETS_UNVERIFIED": "refuse", "TICKETS_DATABASES": ONE}
    assert error_of(alone).startswith("TICKETS_UNVERIFIED is 'refuse'; expected ")
    for urls in (f"oracle://u:{SECRET}@h/d", f"mysql://u:{SECRET}#@h/d", SECRET, f"{URLS} embedded"):
        line = error_of({"TICKETS_DATABASES": urls})
        assert (line.startswith("TICKETS_DATABASES: "), URLS_WANTED in line) == (True, True)
    for host in ("0.0.0.0", "::", "tickets.internal"):
        wanted = f"TICKETS_DATABASES is unset, and TICKETS_HOST is {host!r}, beyond loopback{URLS_WANTED}"
        assert error_of({"TICKETS_HOST": host}).startswith(wanted)
    for name in ("TICKETS_tokens", "TICKET_TOKENS", "tickets_tokens"):
        wanted = f"{name}: there is no such setting; the nearest one is TICKETS_TOKENS: rename it"
        assert error_of({name: SECRET}).startswith(wanted)
    for name in ("TICKETS_PORT", "TICKETS_HOST", "TICKETS_REDIS_PORT"):
        line = error_of({name: "tcp://10.96.0.1:1"})
        assert line.startswith(f"{name} is 'tcp://10.96.0.1:1'; expected ")
        assert "enableServiceLinks: false" in line


def test_what_goes_together_is_accepted_and_a_flag_is_named_where_it_is_wrong() -> None:
    assert load({"TICKETS_DATABASES": URLS, "TICKETS_UNVERIFIED": "refuse"}, {}).unverified == "refuse"
    assert load({"TICKETS_DATABASES": ONE, "TICKETS_INCREMENT": "1"}, {}).increment == 1
    assert load({"TICKETS_HOST": "::", "TICKETS_DATABASES": "embedded"}, {}).is_embedded
    assert not load({"TICKETS_HOST": "10.0.0.1", "TICKETS_DATABASES": URLS}, {}).is_local
    assert all(load({"TICKETS_HOST": each}, {}).is_embedded for each in ("127.0.0.1", "127.9.9.9", "::1", "localhost"))
    assert error_of({}, {"redis_port": "x"}).startswith("--redis-port is 'x'; expected a port, 0 to 65535")


@given(st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", max_size=30))
def test_no_unknown_name_is_passed_over(rest: str) -> None:
    known = {variable(field) + ending for field in Settings.model_fields for ending in ("", "_FILE")}
    for name in {f"TICKETS_{rest}", f"TICKET_{rest}"} - known:
        if "_SERVICE_" not in f"_{rest}" and not name.startswith("TICKETS_DEPLOY_"):
            assert error_of({name: "x"}).startswith(f"{name}: there is no such setting")


def test_the_names_of_others_are_passed_over() -> None:
    others = "SERVICE_HOST", "SERVICE_PORT_HTTP", "PORT_8000_TCP_ADDR", "DEPLOY_FRONT"
    services = {"TICKETS_MYSQL_PORT": "tcp://10.0.0.1:3306", "TICKET_PORT": "udp://10.0.0.1:53", "TICKETD_URL": "x"}
    assert load({f"TICKETS_{name}": "10.0.0.1" for name in others} | services, {}).is_embedded
