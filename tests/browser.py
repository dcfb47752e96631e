"""Headless Chromium through its WebDriver, as far as the report's tests need it."""

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--window-size=1400,1000",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip


class Browser:
    """One page at a time. Errors of the page's scripts are collected by the browser's log."""

    def __init__(self, port, profile):
        self.address = f"http://127.0.0.1:{port}/session"
        chromium = {"binary": CHROMIUM, "args": [*OPTIONS, f"--user-data-dir={profile}"]}
        wanted = {"goog:chromeOptions": chromium, "goog:loggingPrefs": {"browser": "ALL"}}
        self.address += "/" + self._call("POST", "", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]

    def _call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data=data, method=method)
        with urllib.request.urlopen(request, timeout=180) as answer:
            return json.load(answer)["value"]

    def open(self, page):
        self._call("POST", "/url", {"url": page.as_uri()})

    def run(self, script, *arguments):
        """What a JavaScript function body returns."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait_for(self, script, *arguments, seconds=120):
        """The first value of a script that is true."""
        deadline = time.monotonic() + seconds
        while not (value := self.run(script, *arguments)):
            assert time.monotonic() < deadline, f"never true: {script}; the page says: {self.text()[:2000]}"
            time.sleep(0.1)
        return value

    def text(self):
        return self.run("return document.body.innerText")

    def click(self, words):
        """Click the innermost visible element that reads so."""
        find = (
            "return [...document.querySelectorAll('a, button, li, td, span, div, label')].filter("
            "e => e.offsetParent && e.innerText.trim() === arguments[0]).pop()"
        )
        element = self.wait_for(find, words)
        self.run("arguments[0].click()", element)

    def type_into(self, selector, words):
        element = self.wait_for("return document.querySelector(arguments[0])", selector)
        (identifier,) = element.values()
        self._call("POST", f"/element/{identifier}/value", {"text": words})

    def errors(self):
        """Messages of severity SEVERE since the last call."""
        found = self._call("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in found if entry["level"] == "SEVERE"]

    def close(self):
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            self._call("DELETE", "")


@contextlib.contextmanager
def browser(profile):
    """A browser with an empty profile in the folder `profile`, closed at the end whatever happens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    driver = subprocess.Popen([DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        page = _started(port, profile)
        try:
            yield page
        finally:
            page.close()
    finally:
        driver.terminate()
        driver.wait(timeout=20)


def _started(port, profile, seconds=120):
    deadline = time.monotonic() + seconds
    while True:
        try:
            return Browser(port, profile)
        except (urllib.error.URLError, ConnectionError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
