"""Which addresses only this machine can reach."""

import pytest

from app.common.addresses import is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_this_machine_alone(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "db1", "localhost.example", ""])
def test_others_too(host: str) -> None:
    assert not is_loopback(host)
