"""`make docs`: the site builds strictly, asks no other machine for anything, and is usable by
everybody.

The first needs mkdocs, the others also a Chromium and playwright; where one is missing, they are
skipped.
"""

from pathlib import Path

import pytest
from browser import assert_usable, visit
from projects import ROOT, python

pytest.importorskip("mkdocs", reason="mkdocs is not installed (pip install '.[docs]')")

pytestmark = pytest.mark.slow
PAGES = ("index", "tutorial", "board", "protocol", "reproduction", "command_line", "api/diagnose")
VIEWS = {  # width and scheme -> pages; the theme's other widths and scheme on some of every kind
    (360, "light"): PAGES,
    (768, "dark"): ("index", "board", "api/diagnose"),
    (1280, "light"): ("index", "command_line", "api/diagnose"),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built as `make docs` does."""
    folder = tmp_path_factory.mktemp("site") / "site"
    words = ("-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder))
    done = python(ROOT, *words, NO_MKDOCS_2_WARNING="1")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_it_builds_strictly_and_has_what_was_promised(site):
    promised = {
        "index": "Audit my model",
        "api/diagnose": "headline_acc",
        "command_line": "--configfile FILE",
        "configuration": "snapshots",
        "repository/results/index": "",  # of a file beside docs/
    }
    for name, text in promised.items():
        assert text in (site / f"{name}.html").read_text()
    for page in site.glob("**/*.html"):
        text = page.read_text()
        assert "unpkg.com" not in text and "fonts.googleapis" not in text, page


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_its_pages_are_quiet_whole_and_accessible(site, chromium, width, scheme):
    for name in VIEWS[width, scheme]:
        # Of a page in a folder, what it loads lies above it.
        with visit(chromium, site / f"{name}.html", width, scheme, folder=site) as page:
            page.wait_for_timeout(200)
            assert_usable(page)


def test_the_search_works_from_a_disk(site, chromium):
    with visit(chromium, site / "index.html", folder=site) as page:
        page.click("input.md-search__input")
        page.keyboard.type("borderline")
        page.wait_for_selector(".md-search-result__item a", state="attached", timeout=10_000)
        links = page.query_selector_all(".md-search-result__item a")
        assert any("auditing" in link.get_attribute("href") for link in links)
