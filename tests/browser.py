"""A headless Chromium for the tests of the page: that of the system, or the one that playwright
installed.
"""

import shutil
from contextlib import contextmanager
from pathlib import Path

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
