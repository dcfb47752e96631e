"""A headless Chromium for the tests of the page: that of the system, or the one that playwright
installed.
"""

import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


def executable():
    """The path of a Chromium, or None."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found:
        return found
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    return own if Path(own).exists() else None


def missing():
    """What is not on this machine."""
    return [] if executable() else ["chromium"]


@contextmanager
def chromium(path):
    """A headless Chromium, closed at the end."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Without its sandbox, which root cannot have; what it opens is made by the tests.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def visit(chromium, path, width=1280, scheme="light", *, folder=None, **options):
    """Open a page that must write nothing to the console and load nothing from outside of a folder."""
    said, asked = [], []
    view = {"width": width, "height": 800}
    context = chromium.new_context(viewport=view, color_scheme=scheme, **options)
    page = context.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    yield page
    context.close()
    assert not said, said
    inside = ((folder or path).as_uri(), "data:", "about:")
    assert [url for url in asked if not url.startswith(inside)] == []


def assert_usable(page):
    """Check that axe finds nothing wrong, and that the page does not scroll sideways."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    # Without preloading: it would fetch style sheets, which no page of a disk may.
    found = axe.run(page, options={"preload": False}).response["violations"]
    assert [(rule["id"], rule["nodes"][0]["target"]) for rule in found] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
