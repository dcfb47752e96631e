"""`make docs`: the site builds strictly, asks no other machine for anything, and is usable by
everybody.

The first needs mkdocs, the others also a Chromium and playwright; where one is missing, they are
skipped.
"""

from pathlib import Path

import pytest
from projects import ROOT, python

pytest.importorskip("mkdocs", reason="mkdocs is not installed (pip install '.[docs]')")

pytestmark = pytest.mark.slow
PAGES = (
    "index",
    "tutorial",
    "board",
    "protocol",
    "reproduction",
    "command_line",
    "api/diagnose",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built as `make docs` does."""
    folder = tmp_path_factory.mktemp("site") / "site"
    words = ("-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder))
    done = python(ROOT, *words, NO_MKDOCS_2_WARNING="1")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_it_builds_strictly_and_has_what_was_promised(site):
    start, api, cli, config = (
        (site / f"{name}.html").read_text()
        for name in ("index", "api/diagnose", "command_line", "configuration")
    )
    assert (
        "Audit my model" in start
        and "headline_acc" in api
        and "--configfile FILE" in cli
        and "snapshots" in config
    )
    assert (site / "repository/results/index.html").exists()  # of a file beside docs/
    for page in site.glob("**/*.html"):
        assert "unpkg.com" not in (text := page.read_text()) and "fonts.googleapis" not in text, (
            page
        )


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (768, "dark"), (1280, "light")])
def test_its_pages_are_quiet_whole_and_accessible(site, chromium, width, scheme):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is not installed"
    ).Axe()
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    for name in PAGES:
        page, said, asked = context.new_page(), [], []
        page.on("console", lambda message, said=said: said.append(message.text))
        page.on("pageerror", lambda error, said=said: said.append(str(error)))
        page.on("request", lambda request, asked=asked: asked.append(request.url))
        page.goto((site / f"{name}.html").as_uri(), wait_until="load")
        page.wait_for_timeout(200)
        assert said == [], name
        assert [
            url for url in asked if not url.startswith((site.as_uri(), "data:", "about:"))
        ] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        found = [
            (rule["id"], rule["nodes"][0]["target"])
            for rule in axe.run(page).response["violations"]
        ]
        assert found == [], name
        page.close()
    context.close()


def test_the_search_works_from_a_disk(site, chromium):
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    page.goto((site / "index.html").as_uri())
    page.click("input.md-search__input")
    page.keyboard.type("borderline")
    page.wait_for_selector(".md-search-result__item a", state="attached", timeout=10_000)
    assert "auditing" in " ".join(
        link.get_attribute("href") for link in page.query_selector_all(".md-search-result__item a")
    )
    page.close()
