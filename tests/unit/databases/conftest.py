"""The server that stands behind the adapter of the driver."""

import pytest

from app.databases.mysql.line import connection
from tests.unit.databases.mysql_driver import Server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """Every new connection to MySQL leads to this server."""
    server = Server()
    monkeypatch.setattr(connection, "Driver", server.driver)
    return server
