"""A proxy that multiplexes sessions, as ProxySQL and MaxScale can: each client has two sessions on the database, and
what it sends goes to whichever of them the proxy chooses, whole packet by whole packet. Without TLS."""

import contextlib
import select
import socket
import threading

import pymysql
from pymysql.constants import CLIENT

from tests.harness.mysqld import TicketMySQL
from tests.harness.schema import PASSWORD, USER


class Multiplexer:
    """Listens on `port` of 127.0.0.1. `swap` has the packets of every client go to the other one of its sessions from
    now on; while `swaps_each` is true, each packet goes to the other session than the one before."""

    def __init__(self, target: TicketMySQL, schema: str) -> None:
        self.swaps_each = False
        self._target = target
        self._schema = schema
        self._chosen = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> "Multiplexer":
        self._threads[0].start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)

    @property
    def name(self) -> str:
        """host:port, as the ticket server names the database behind it."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return self._target.url_of(self._schema, self.port, "?ssl-mode=DISABLED&get-server-public-key=true")

    def swap(self) -> None:
        """Choose the other session of every client."""
        self._chosen = 1 - self._chosen

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        """Until either side hangs up. The client logs in to the first session; the second is logged in to here."""
        database = "127.0.0.1", self._target.port
        with (
            contextlib.suppress(OSError, pymysql.MySQLError),
            client,
            socket.create_connection(database) as first,
            socket.create_connection(database) as second,
        ):
            login = pymysql.connect(  # whose end would close the socket
                user=USER,
                password=PASSWORD,
                database=self._schema,
                client_flag=CLIENT.MULTI_STATEMENTS,
                ssl_disabled=True,
                defer_connect=True,
            )
            login.connect(second)
            sessions = [first, second]
            while not self._over.is_set():
                for source in select.select([client, *sessions], [], [], 0.2)[0]:
                    data = source.recv(1 << 20)
                    if not data:
                        return
                    if source is not client:
                        client.sendall(data)
                    elif data[3] == 0:  # the number of a packet that is a command; a login has others
                        if self.swaps_each:
                            self.swap()
                        sessions[self._chosen].sendall(data)
                    else:
                        first.sendall(data)
