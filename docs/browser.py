"""A headless Chromium, driven through a pipe by its own protocol (CDP): no driver, no package, no port."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

CHROMIUM: Final = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"))), None
)
LIMIT_S: Final = 60.0
"""The longest wait for an answer: a browser on a busy machine starts slowly."""
_LAUNCH: Final = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)


class Browser:
    """One browser with one page. ``requests`` are the addresses that the page asked for, ``errors`` its console's."""

    def __init__(self, profile: Path, width: int = 1280, height: int = 800) -> None:
        assert CHROMIUM is not None
        out_read, out_write = os.pipe()
        in_read, in_write = os.pipe()
        flags = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--no-first-run", "--disable-extensions", "--disable-background-networking", "--remote-debugging-pipe",
            f"--user-data-dir={profile}", f"--window-size={width},{height}", "about:blank",
        ]  # fmt: skip
        command = [sys.executable, "-c", _LAUNCH, str(in_read), str(out_write), CHROMIUM, *flags]
        self._process = subprocess.Popen(
            command, pass_fds=(in_read, out_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(in_read)
        os.close(out_write)
        self._in, self._out = in_write, out_read
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.errors: list[str] = []
        target = next(one for one in self.send("Target.getTargets")["targetInfos"] if one["type"] == "page")
        attached = self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; events on the way are recorded."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._in, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._out], [], [], LIMIT_S)
            assert ready, "the browser does not answer"
            block = os.read(self._out, 1 << 20)
            assert block, "the browser has ended"
            self._buffer += block
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._record(message.get("method", ""), message.get("params", {}))
        return message

    def _record(self, method: str, parameters: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.errors.append(str(parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.errors.append(parameters["entry"]["text"])

    def open(self, page: Path, anchor: str = "") -> None:
        """Open a file and wait until its script has run."""
        self.send("Page.navigate", url="about:blank")
        self.requests.clear()
        self.errors.clear()
        self.send("Page.navigate", url=page.resolve().as_uri() + anchor)
        self.wait("document.readyState === 'complete' && document.documentElement.dataset.ready === 'yes'")
        self.settle()

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until a condition holds; the page checks it once a frame."""
        limit = int(1000 * LIMIT_S)
        found = self.evaluate(
            f"new Promise((done) => {{ const end = performance.now() + {limit}; const look = () => ({condition}) ? "
            "done(true) : performance.now() > end ? done(false) : setTimeout(look, 16); look(); })"
        )
        assert found, f"never true: {condition}; {self.errors}"

    def settle(self) -> None:
        """Wait for two drawn frames."""
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def text(self, selector: str) -> str:
        """Return the visible text of an element."""
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    def count(self, selector: str) -> int:
        """Count elements."""
        return int(self.evaluate(f"document.querySelectorAll({json.dumps(selector)}).length"))

    def click(self, selector: str) -> None:
        """Click the middle of the first such element with the mouse."""
        at = self.evaluate(
            f"(() => {{ const one = document.querySelector({json.dumps(selector)}); one.scrollIntoView({{block: "
            "'center'}); const box = one.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / "
            "2]; })()"
        )
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = "none" if kind == "mouseMoved" else "left"
            self.send("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button=button, clickCount=1)
        self.settle()

    def press(self, key: str) -> None:
        """Press and release a key; a character is also typed."""
        typed = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **typed)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def type(self, text: str) -> None:
        """Type a text into the element that has the focus."""
        self.send("Input.insertText", text=text)
        self.settle()

    def dark(self, dark: bool) -> None:
        """Prefer a dark or a light page."""
        value = "dark" if dark else "light"
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """Save the page as a PNG, for people."""
        found = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def pdf(self) -> bytes:
        """Print the page."""
        return base64.b64decode(self.send("Page.printToPDF", printBackground=False)["data"])

    def close(self) -> None:
        """End the browser."""
        try:
            self._session = None
            self.send("Browser.close")
        except (AssertionError, OSError):
            self._process.kill()
        self._process.wait(LIMIT_S)
        os.close(self._in)
        os.close(self._out)
