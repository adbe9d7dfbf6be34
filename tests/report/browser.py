"""A headless Chromium, driven over its debugging pipe; nothing but the standard library."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: `apt-get install chromium`")


class Page:
    """One page. `messages` collects console errors and exceptions; `run` evaluates JavaScript."""

    def __init__(self) -> None:
        assert CHROMIUM is not None
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--hide-scrollbars"]
        command = [CHROMIUM, *flags, f"--user-data-dir={self._profile.name}", "about:blank"]
        # The browser speaks on descriptors 3 and 4; dash cannot redirect two-digit ones.
        script = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", *command],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer, self._number, self._session = b"", 0, None
        self.messages: list[str] = []
        self.requests: list[str] = []
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline:
            answer = self._next(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])
        raise TimeoutError(method)

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser is silent")
            self._buffer += os.read(self._read, 1 << 16)
        raw, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(raw)
        self._notice(answer)
        return answer

    def _notice(self, event: dict[str, Any]) -> None:
        method, body = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown" or (
            method == "Runtime.consoleAPICalled" and body["type"] in ("error", "warning")
        ):
            self.messages.append(json.dumps(body)[:600])
        if method == "Log.entryAdded" and body["entry"]["level"] in ("error", "warning"):
            self.messages.append(json.dumps(body["entry"])[:600])
        if method == "Network.requestWillBeSent":
            self.requests.append(body["request"]["url"])

    def open(self, path: Path, dark: bool = False, width: int = 1280, height: int = 1000) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.documentElement?.dataset.ready === 'true'")

    def run(self, code: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = 600) -> None:
        deadline = time.monotonic() + seconds
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < deadline, f"never: {condition}"
            time.sleep(0.05)

    def mouse(self, kind: str, x: float, y: float, button: str = "none") -> None:
        pressed = {"clickCount": 1} if button != "none" else {}
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, **pressed)

    def key(self, name: str) -> None:
        text = {"text": name} if len(name) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=name, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name)

    def screenshot(self, path: Path) -> None:
        height = self.run("document.documentElement.scrollHeight")
        clip = {"x": 0, "y": 0, "width": self.run("innerWidth"), "height": height, "scale": 1}
        shot = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=600)
        os.close(self._write)
        os.close(self._read)
        self._profile.cleanup()
