"""The server that stands behind the adapter of the driver."""

import pytest

from app.databases.mysql.line import connection
from tests.unit.databases.mysql_driver import Server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """Whoever opens a connection to MySQL is connected to this one."""
    server = Server()
    monkeypatch.setattr(connection, "Driver", server.driver)
    return server
