"""A headless Chromium, driven over its DevTools protocol.

A test library would bring a runtime of its own of 50 MB; the protocol needs a WebSocket.
"""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import websocket

PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_SECONDS: Final = 30.0
_FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--ignore-certificate-errors", "--hide-scrollbars"),
    # A window that counts as covered draws nothing.
    *("--disable-backgrounding-occluded-windows", "--disable-renderer-backgrounding"),
    *("--remote-debugging-port=0", "--remote-allow-origins=*", "--force-color-profile=srgb"),
)
KEYS: Final = {"Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, ""), "ArrowDown": (40, "")}


class BrowserError(AssertionError):
    """The page did not do what the test waits for."""


class Page:
    """One tab, with cookies and storage of its own."""

    def __init__(self, url: str, context: str) -> None:
        self.context = context
        self._socket = websocket.create_connection(url, timeout=PATIENCE_SECONDS)
        self._number = 0
        self.errors: list[str] = []
        """Uncaught errors, and refusals of the content security policy."""
        self.requests: list[str] = []
        """URLs that the page has asked for."""
        self.failures: list[str] = []
        """Requests without an answer, and refused ones."""
        self.pending: dict[str, str] = {}
        """Those without a complete answer."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        self._socket.send(json.dumps(message))
        while True:
            answer = json.loads(self._socket.recv())
            self._note(answer)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                return dict(answer["result"])

    def _note(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                details = parameters["exceptionDetails"]
                thrown = details.get("exception", {}).get("description", "")
                self.errors.append(f"{details['text']} {thrown}")
            case "Log.entryAdded":
                entry = parameters["entry"]
                # A response with an error status is no mistake of the page.
                if entry["level"] == "error" and entry["source"] != "network":
                    self.errors.append(f"{entry['text']} {entry.get('url', '')}")
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
                self.pending[parameters["requestId"]] = parameters["request"]["url"]
            case "Network.loadingFinished":
                self.pending.pop(parameters["requestId"], None)
            case "Network.loadingFailed":
                url = self.pending.pop(parameters["requestId"], "")
                self.failures.append(f"{url}: {parameters['errorText']}")
            case "Network.responseReceived" if parameters["response"]["status"] >= 400:
                response = parameters["response"]
                self.failures.append(f"{response['url']}: {response['status']}")
            case "Network.webSocketCreated":
                self.requests.append(parameters["url"])

    def open(self, url: str) -> None:
        """Load a page as a new one, also if only the fragment differs."""
        # A second navigation would be lost if it began before the first is done.
        self.call("Page.navigate", url="about:blank")
        self.wait("location.href === 'about:blank' && document.readyState === 'complete'")
        self.call("Page.navigate", url=url)
        self.wait("location.href !== 'about:blank' && document.body !== null")

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, which may be a promise."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def wait(self, expression: str, seconds: float = PATIENCE_SECONDS) -> Any:
        """Return the value of an expression as soon as it is true."""
        deadline = time.monotonic() + seconds
        problem: object = None
        while time.monotonic() < deadline:
            try:
                value = self.evaluate(expression)
                if value:
                    return value
            except BrowserError as error:
                problem = error
            time.sleep(0.05)
        raise BrowserError(
            f"{expression} did not become true ({problem}); the page has errors {self.errors},"
            f" waits for {list(self.pending.values())}, got {self.failures} and says:\n"
            f"{self.text()[:3000]}"
        )

    def text(self) -> str:
        return str(self.evaluate("document.body.innerText"))

    def wait_for_text(self, text: str, seconds: float = PATIENCE_SECONDS) -> None:
        self.wait(f"document.body.innerText.includes({json.dumps(text)})", seconds)

    def click(self, selector: str) -> None:
        self.wait(f"document.querySelector({json.dumps(selector)}) !== null")
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def fill(self, selector: str, text: str) -> None:
        """Replace the content of a field, as typing does."""
        self.wait(f"document.querySelector({json.dumps(selector)}) !== null")
        self.evaluate(
            f"(() => {{ const field = document.querySelector({json.dumps(selector)});"
            f" field.focus(); field.value = {json.dumps(text)};"
            " field.dispatchEvent(new Event('input', {bubbles: true}));"
            " field.dispatchEvent(new Event('change', {bubbles: true})); })()"
        )

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        for character in text:
            self.press("Enter" if character == "\n" else character)

    def press(self, key: str) -> None:
        """Press a key, by its name or by its character."""
        code, sent = KEYS.get(key, (ord(key.upper()) if len(key) == 1 else 0, key))
        common = {"key": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=sent, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def show(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Change the size of the window and the colours that the user prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path) -> None:
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(data))

    def busy_seconds(self) -> float:
        """Processor time of the page, for scripts, styles and layout."""
        self.call("Performance.enable", timeDomain="threadTicks")
        metrics = self.call("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))

    def cookies(self) -> list[dict[str, Any]]:
        return list(self.call("Network.getAllCookies")["cookies"])

    def close(self) -> None:
        with suppress(Exception):
            self._socket.close()


class Browser:
    """A running browser."""

    def __init__(self, port: int, url: str) -> None:
        self._port = port
        self._socket = websocket.create_connection(url, timeout=PATIENCE_SECONDS)
        self._number = 0
        self._lock = threading.Lock()

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        with self._lock:
            self._number += 1
            message = {"id": self._number, "method": method, "params": parameters}
            self._socket.send(json.dumps(message))
            while True:
                answer = json.loads(self._socket.recv())
                if answer.get("id") == self._number:
                    return dict(answer["result"])

    def close(self) -> None:
        with suppress(Exception):
            self._socket.close()

    @contextmanager
    def page(self, shared: str = "") -> Iterator[Page]:
        """A new window that shares nothing with the others, or only with those of a context."""
        context = shared or self._call("Target.createBrowserContext")["browserContextId"]
        target = self._call("Target.createTarget", url="about:blank", browserContextId=context)[
            "targetId"
        ]
        page = Page(f"ws://127.0.0.1:{self._port}/devtools/page/{target}", context)
        try:
            page.show()
            page.call("Page.bringToFront")
            # Only a page that counts as shown gets frames.
            page.call("Emulation.setFocusEmulationEnabled", enabled=True)
            yield page
        finally:
            page.close()
            if not shared:
                self._call("Target.disposeBrowserContext", browserContextId=context)


def program() -> str | None:
    """Return the path of the browser; None if there is none."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


@contextmanager
def running(path: str) -> Iterator[Browser]:
    """Start a browser, and end it with all its processes."""
    with tempfile.TemporaryDirectory(prefix="kedge-browser-") as folder:
        process = subprocess.Popen(
            [path, *_FLAGS, f"--user-data-dir={folder}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "HOME": folder},
        )
        try:
            port = _port(Path(folder) / "DevToolsActivePort")
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/version") as answer:
                url = json.load(answer)["webSocketDebuggerUrl"]
            found = Browser(port, url)
            try:
                yield found
            finally:
                found.close()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()
            # Its last processes may still write files for a moment.
            time.sleep(0.2)


def _port(file: Path) -> int:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError, ValueError, IndexError):
            return int(file.read_text().splitlines()[0])
        time.sleep(0.05)
    raise BrowserError("the browser does not start")
