"""A real Chromium without a window, driven over its debugging protocol."""

import base64
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import httpx
import websocket

from tests.harness.processes import ChildProcess, new_directory, remove_directory, wait_until

# It is to speak to the page's server alone: no QUIC, no updates, no services of its maker.
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--remote-debugging-port=0", "--remote-allow-origins=*",
)  # fmt: skip


class NoBrowser(Exception):
    """There is no Chromium."""


class Browser:
    """One Chromium with one page. What its console says in errors is kept in `complaints`."""

    def __init__(self) -> None:
        path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        if path is None:
            raise NoBrowser("The test of the pages needs Chromium (Debian: `apt-get install chromium`).")
        self._base = new_directory("tickets-browser-")
        log = self._base / "log"
        self._process = ChildProcess(
            [path, *_FLAGS, f"--user-data-dir={self._base}/profile", "about:blank"], stdout=log, stderr=log
        )
        self._socket: websocket.WebSocket | None = None
        self._numbers = itertools.count(1)
        self.complaints: list[str] = []
        self.requested: list[str] = []
        try:
            self._socket = websocket.create_connection(self._page_address(), timeout=100)
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.command(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.shutdown()  # type: ignore[no-untyped-call]
        self._process.kill()
        remove_directory(self._base)

    def _page_address(self) -> str:
        where = self._base / "profile" / "DevToolsActivePort"
        wait_until(
            lambda: where.exists() and where.read_text(encoding="ascii").count("\n") > 0, 60, "Chromium to start"
        )
        port = where.read_text(encoding="ascii").split()[0]
        pages = httpx.get(f"http://127.0.0.1:{port}/json/list", timeout=100, trust_env=False, verify=False).json()
        return str(next(page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page"))

    def command(self, method: str, **parameters: Any) -> Any:
        """One command of the debugging protocol; its result."""
        assert self._socket is not None
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        about = message.get("params", {})
        if message.get("method") == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.complaints.append(about["entry"]["text"])
        elif message.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(about["exceptionDetails"]["text"])
        elif message.get("method") == "Network.requestWillBeSent":
            self.requested.append(about["request"]["url"])

    def look(self, width: int, height: int, *, dark: bool = False, scripts: bool = True) -> None:
        """How wide the page is, whether the reader likes it dark, and whether scripts run."""
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        self.command("Emulation.setScriptExecutionDisabled", value=not scripts)

    def open(self, url: str) -> None:
        """Go there, and wait until it is all there."""
        self.command("Page.navigate", url=url)
        wait_until(
            lambda: self.value(f"document.readyState === 'complete' && location.href === {json.dumps(url)}"), 30, url
        )

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self.command("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def text(self, selector: str) -> str:
        """What a reader sees in the first element that fits; nothing where there is none."""
        return str(self.value(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Save what is to be seen, or the whole page, as a PNG."""
        shot = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))
