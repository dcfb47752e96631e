"""The report as a page: its numbers against the audits, one verdict everywhere, and a browser."""

import base64
import hashlib
import json
import re
import tarfile
from collections import Counter
from html.parser import HTMLParser

import numpy as np
import pytest
from browser import assert_usable, visit
from printed_audits import written
from projects import ROOT, slow

from fa_audit.cli import main
from fa_audit.documents.formats import Table, to_html
from fa_audit.results.page.render import Artefact, page
from fa_audit.results.page.runs import read_runs

HOSTILE = "</script><script>document.title = 'taken'</script><img src=x onerror=\"document.title = 'taken'\">"
NOTES = '--> </style></title> {{ 7 * 7 }} "\' \u2028 <iframe src="https://example.com"></iframe> javascript:alert(1)'
FIGURE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><script>alert(1)</script></svg>'
)


class Page(HTMLParser):
    """A page as it is read without a browser: elements with their attributes and texts, in order."""

    def __init__(self, text):
        super().__init__()
        self.elements, self._open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        element = {"tag": tag, "text": "", **dict(attributes)}
        self.elements.append(element)
        if tag not in ("meta", "img", "input"):
            self._open.append(element)

    def handle_endtag(self, tag):
        while self._open and self._open.pop()["tag"] != tag:
            pass

    def handle_data(self, data):
        for element in self._open:
            element["text"] += data

    def all(self, tag, **attributes):
        """Elements of a tag with these values of attributes."""
        found = [one for one in self.elements if one["tag"] == tag]
        for name, value in attributes.items():
            found = [one for one in found if one.get(name.replace("_", "-")) == value]
        return found


@pytest.fixture(scope="module")
def audits(tmp_path_factory):
    """Stored audits of a workflow, by name; those of trained networks in the setting `main`."""
    folder = tmp_path_factory.mktemp("audits")
    with tarfile.open(ROOT / "tests/golden/audits.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    found = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    for audit in found.values():
        if "spec" in audit:
            audit["setting"] = "main"
    return found


@pytest.fixture(scope="module")
def paths(audits, tmp_path_factory):
    return written(tmp_path_factory.mktemp("signed"), list(audits.values()))


@pytest.fixture(scope="module")
def runs(paths):
    return read_runs(paths, {"main": "Main audit", "dfa": "DFA"})


@pytest.fixture(scope="module")
def whole(runs, tmp_path_factory):
    """A page with everything that a page can have."""
    folder = tmp_path_factory.mktemp("page")
    figure, table = folder / "figures/overview.svg", folder / "tables/main.html"
    for path in (figure, table):
        path.parent.mkdir()
    figure.write_text(FIGURE)
    cells = Table("All runs", ("run", "note"), (("dfa", HOSTILE),))
    table.write_text(to_html(cells))
    artefacts = [Artefact("Overview", "Every check.", figure), Artefact("Runs", "", table)]
    text = page(runs, claims=cells, figures=artefacts[:1], tables=artefacts[1:])
    (folder / "page.html").write_text(text)
    return folder / "page.html"


@pytest.fixture(scope="module")
def hostile(audits, tmp_path_factory):
    """The page of a network whose author named it and remarked upon it with bad intent."""
    folder = tmp_path_factory.mktemp("hostile")
    audit = audits["own"] | {"method": HOSTILE, "notes": NOTES}
    path = folder / "own.html"
    assert main(["report", "--html", *written(folder, [audit]), "--output", str(path)]) == 0
    return path


def rows_of(text):
    """The cells of every run's row, by the headings of the table of verdicts."""
    elements = Page(text).elements
    names = [one["text"] for one in elements if one.get("role") == "columnheader"]
    cells = [one["text"].strip() for one in elements if one.get("role") in ("cell", "rowheader")]
    width = len(names)
    return [dict(zip(names, cells[at : at + width])) for at in range(0, len(cells), width)]


# --- without a browser


def test_numbers_of_the_first_screen_are_those_of_the_audits(audits, whole):
    rows = rows_of(whole.read_text())
    (dfa,) = [row for row in rows if row["Run"] == "DFA"]
    seeds = [audits[f"dfa_seed{seed}"] for seed in (1, 2, 3)]
    expected = {
        "Accuracy (%)": [100 * audit["headline_acc"] for audit in seeds],
        "Margin (points)": [100 * audit["checks"]["depth"]["value"] for audit in seeds],
    }
    assert dfa["Seeds"] == "3" and dfa["Setting"] == "Main audit"
    for heading, values in expected.items():
        numbers = [float(number) for number in dfa[heading].split(" ± ")]
        assert numbers == pytest.approx([np.mean(values), np.std(values, ddof=1)], abs=0.051)
    # In a setting, the largest margin comes first.
    shown = [row["Margin (points)"] for row in rows if row["Setting"] == "Main audit"]
    margins = [float(text.split()[0]) for text in shown]
    assert len(margins) == 4 and margins == sorted(margins, reverse=True)


def test_the_page_agrees_with_itself(runs, whole):
    """Headline, row and summary of a run say the same verdict, and its row the same outcomes as the
    first table of its evidence.
    """
    found = Page(whole.read_text())
    rows = rows_of(whole.read_text())
    summaries = [one["text"] for one in found.all("summary")]
    for run, row, summary in zip(runs, rows, summaries, strict=True):
        assert row["Verdict"].removesuffix(" see warnings") == summary.split(" · ")[-1]
        checks = next(section.tables[0] for section in run.evidence.sections if section.tables)
        outcomes = [cells[4] for cells in checks.rows]
        assert [row[one.kind.label] for one in run.checks] == outcomes[: len(run.checks)]
    results = Counter(run.result for run in runs)
    for result, count in results.items():
        assert f"{count} {result}" in found.all("h1")[0]["text"]


def test_nothing_of_a_stranger_is_markup_and_nothing_is_loaded(hostile, whole):
    for path in (hostile, whole):
        found = Page(path.read_text())
        (script,) = found.all("script")
        assert not found.all("iframe")
        digest = base64.b64encode(hashlib.sha256(script["text"].encode()).digest()).decode()
        (policy,) = found.all("meta", http_equiv="Content-Security-Policy")
        assert policy["content"].startswith("default-src 'none'")
        assert policy["content"].endswith(f"script-src 'sha256-{digest}'")
        for one in found.elements:
            places = [one.get(name) or "#" for name in ("src", "href")]
            assert all(place.startswith(("#", "data:image/svg+xml;base64,")) for place in places)
        (style,) = found.all("style")
        assert not re.search(r"url\(|@import", style["text"])
    found = Page(hostile.read_text())
    assert HOSTILE in found.all("h1")[0]["text"] and not found.all("img")
    assert any(NOTES in one["text"] for one in found.all("li"))


@pytest.mark.parametrize("changes", [{"frozen_blocks": 2}, {"epochs": 0}, {"snapshot": 0}])
def test_a_network_without_trained_blocks_is_not_counted_as_a_failure(changes, audits, tmp_path):
    untrained = audits["dfa_seed1"] | {"run": "untrained"}
    untrained["spec"] = untrained["spec"] | changes
    text = page(read_runs(written(tmp_path, [untrained, audits["bp_seed1"]])))
    assert Page(text).all("h1")[0]["text"].startswith("bp: ") and len(rows_of(text)) == 2


# --- in a browser


@pytest.mark.parametrize(
    ("width", "scheme"), [(360, "light"), (1280, "dark"), *slow((768, "light"))]
)
def test_every_width_and_scheme_is_accessible_and_does_not_scroll_sideways(
    whole, chromium, width, scheme
):
    with visit(chromium, whole, width, scheme, bypass_csp=True) as opened:  # axe is a script
        opened.evaluate(
            "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
        )
        assert_usable(opened)
        ground = opened.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(255, 255, 255)") == (scheme == "light")


SHOWN = "#runs tbody tr:not([hidden])"


def test_runs_are_filtered_by_words_and_by_verdict_and_sorted_by_a_column(whole, chromium):
    values = "rows => rows.map(row => Number(row.cells[7].dataset.value))"
    verdicts = "rows => rows.map(row => row.dataset.verdict)"
    with visit(chromium, whole) as opened:
        everything = opened.locator(SHOWN).count()
        opened.click("text=Accuracy (%)")
        rising = opened.locator(SHOWN).evaluate_all(values)
        assert rising == sorted(rising) and len(set(rising)) > 2
        opened.click("text=Accuracy (%)")
        assert opened.locator(SHOWN).evaluate_all(values) == rising[::-1]
        assert opened.locator("#runs th[aria-sort]").count() == 1
        opened.fill("#text", "main  DFA")
        assert opened.locator(SHOWN).count() == 1
        assert opened.inner_text("#count") == f"1 of {everything} runs"
        opened.select_option("#verdict", "INCOMPLETE")
        assert opened.locator(SHOWN).count() == 0
        opened.fill("#text", "")
        assert set(opened.locator(SHOWN).evaluate_all(verdicts)) == {"INCOMPLETE"}


@pytest.mark.parametrize("scripts", [True, False])
def test_a_run_is_one_key_from_its_evidence(whole, chromium, scripts):
    with visit(chromium, whole, java_script_enabled=scripts) as opened:
        opened.locator("#runs a", has_text="DFA").focus()
        opened.keyboard.press("Enter")
        opened.wait_for_selector("details[open] >> text=You may not write")
        assert opened.locator("details[open]").count() == 1
        assert opened.is_visible("#filters") == scripts


def test_it_prints_in_light_colours_with_the_evidence(whole, chromium):
    with visit(chromium, whole, scheme="dark") as opened:
        opened.emulate_media(media="print")
        colour = opened.evaluate("getComputedStyle(document.querySelector('h1')).color")
        assert colour == "rgb(27, 31, 36)" and not opened.is_visible("nav")
        assert opened.is_visible("article >> nth=0")
