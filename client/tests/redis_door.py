"""A small server that speaks RESP and does what a test tells it."""

from __future__ import annotations

import socketserver
import threading
import time


class RedisDoor(socketserver.ThreadingTCPServer):
    """Tickets over the Redis protocol. `says`: what a command's word is answered with in place of the truth.

    `after`: seconds before an answer; `drips`: seconds before each byte of it. `connections`: how many are open.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, token: str | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.token = token
        self.commands: list[list[str]] = []
        self.says: dict[str, bytes | None] = {}
        self.after = self.drips = 0.0
        self.connections = 0
        self.next = 1
        self.lock = threading.Lock()
        self.url = f"redis://127.0.0.1:{self.server_address[1]}"

    def draw(self, size: int) -> int:
        with self.lock:
            first = self.next
            self.next += 2 * size
            return first

    def count(self, more: int) -> None:
        with self.lock:
            self.connections += more


class _Connection(socketserver.StreamRequestHandler):
    server: RedisDoor

    def handle(self) -> None:
        self.server.count(1)
        try:
            self.talk()
        except OSError:
            pass
        finally:
            self.server.count(-1)

    def talk(self) -> None:
        self.known = self.server.token is None
        while line := self.rfile.readline():
            words = []
            for _ in range(int(line[1:])):
                length = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(length + 2)[:-2].decode())
            self.server.commands.append(words)
            reply = self.server.says.get(words[0], self.reply(words))
            if reply is None:
                return
            time.sleep(self.server.after)
            if self.server.drips and words[0] != "AUTH":
                for place in range(len(reply)):
                    time.sleep(self.server.drips)
                    self.wfile.write(reply[place : place + 1])
            else:
                self.wfile.write(reply)

    def reply(self, words: list[str]) -> bytes:
        if words[0] == "AUTH":
            self.known = words[-1] == self.server.token
            return b"+OK\r\n" if self.known else b"-WRONGPASS this token is not known\r\n"
        if not self.known:
            return b"-NOAUTH Authentication required.\r\n"
        first, size = words[0], int(words[3] if words[0] == "TICKET.TAKE" else words[-1]) if len(words) > 2 else 1
        if first == "INCR":
            return b":%d\r\n" % self.server.draw(1)
        if first == "TICKET.TAKE":
            ids = [b"%d" % self.server.draw(1) for _ in range(size)]
            return b"*%d\r\n" % len(ids) + b"".join(b"$%d\r\n%b\r\n" % (len(each), each) for each in ids)
        return b"*3\r\n:%d\r\n:2\r\n:%d\r\n" % (self.server.draw(size), size)
