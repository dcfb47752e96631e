"""The report as a page: what it says against the tables and audits it is made from, and how it is
in a browser.
"""

import base64
import hashlib
import json
import re
import shutil
import time
from dataclasses import replace
from html.parser import HTMLParser

import pandas as pd
import pytest
from made_up_runs import several, tidy_of
from matplotlib.colors import to_hex
from printed_audits import printed_audits
from projects import ROOT, slow

from fa_audit.cli import main
from fa_audit.core.files import signed
from fa_audit.experiments.config_file import load_config
from fa_audit.methods import METHODS
from fa_audit.protocol.sentences import facts_of, sentences
from fa_audit.results.figures.style import run_styles
from fa_audit.results.page.document import page

MEASURED = ROOT / "reference/measured"
SETTINGS = ("frozen_baselines", "main_audit", "penalty_sweep", "student")
HOSTILE = "</script><script>document.title = 'taken'</script><img src=x onerror=\"document.title = 'taken'\">"
NOTES = '--> </style></title> {{ 7 * 7 }} "\' \u2028 <iframe src="https://example.com"></iframe> javascript:alert(1)'


class Page(HTMLParser):
    """A page as it is read without a browser: its elements, their attributes and their texts, in
    order.
    """

    def __init__(self, text):
        super().__init__()
        self.text, self.elements, self._open = text, [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        element = {"tag": tag, "text": "", **dict(attributes)}
        self.elements.append(element)
        if tag not in ("meta", "img", "link"):
            self._open.append(element)

    def handle_endtag(self, tag):
        while self._open and self._open.pop()["tag"] != tag:
            pass

    def handle_data(self, data):
        for element in self._open:
            element["text"] += data

    def all(self, tag, **attributes):
        """Elements of a tag and of values of attributes, of a class where that is among several."""
        wanted = {name.rstrip("_"): value for name, value in attributes.items()}
        return [
            one
            for one in self.elements
            if one["tag"] == tag
            and all(value in (one.get(name) or "").split() for name, value in wanted.items())
        ]

    @property
    def data(self):
        return json.loads(self.all("script", id="data")[0]["text"])


def words(element):
    return " ".join(element["text"].split())


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The page of some of this repository's measured runs, at the command line; beside it the
    folder ``tables``.
    """
    path = tmp_path_factory.mktemp("page") / "measured.html"
    folder = path.parent / "tables"
    for name in SETTINGS:
        shutil.copytree(MEASURED / name, folder / name)
    config = str(ROOT / "configs/measured.yaml")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        assert (
            main(
                [
                    "report",
                    "--html",
                    "--from",
                    str(folder),
                    "--configfile",
                    config,
                    "--output",
                    str(path),
                ]
            )
            == 0
        )
    return path


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """The page of two seeds of a network whose author named it and remarked upon it with bad
    intent; its audits.
    """
    folder = tmp_path_factory.mktemp("hostile")
    audits, paths = printed_audits(folder, (3, 7)), []
    for index, audit in enumerate(audits):
        for name in ("spec", "digest", "seconds", "device", "commit"):
            audit.pop(name, None)
        audit |= {"method": HOSTILE, "notes": NOTES}
        paths.append(folder / f"audit{index}.json")
        paths[-1].write_text(json.dumps(signed(audit)))
    assert main(["report", "--html", *map(str, paths), "--output", str(folder / "own.html")]) == 0
    return folder / "own.html", audits


# --- without a browser
# -----------------------------------------------------------------------------------------------


def test_labels_order_and_numbers_of_the_first_screen_are_those_of_the_tables(measured):
    found = Page(measured.read_text())
    runs = pd.read_csv(MEASURED / "main_audit/runs.csv")
    means = runs.groupby("run")[["accuracy", "own_frozen_acc"]].mean()
    means["margin"] = means["accuracy"] - means["own_frozen_acc"]
    ranked = means.sort_values("margin", ascending=False)
    rows = [words(row) for row in found.all("tr", class_="run-row")]
    labels = load_config(ROOT / "configs/measured.yaml")[0]["labels"]
    for row, (run, own) in zip(rows, ranked.iterrows(), strict=False):
        seeds = runs[runs["run"] == run]
        fired = {
            check: seeds[f"{check}_fires"].all()
            for check in ("scale", "reference", "stability", "depth")
        }
        three_check = seeds["three_check"].iloc[0]
        result, _, reasons = three_check.partition("(")
        assert row.startswith(f"{labels[run]} {result} {reasons and '('}{reasons}")
        assert bool(re.search(r"and \(c\)( \(borderline\))? fires", row)) == fired["stability"]
        chips = re.findall(r"([abcd]) (fires|fine)", row)
        assert chips == [
            (letter, "fires" if fires else "fine") for letter, fires in zip("abcd", fired.values())
        ]
        numbers = [float(number) for number in re.findall(r"(\S+) (?:%|points)", row)]
        assert numbers == pytest.approx([100 * number for number in own], abs=0.051)
    settings = [
        re.split(" resmlp| student_mlp", words(row))[0] for row in found.all("tr", class_="setting")
    ]
    assert settings == [
        "Main audit",
        "frozen_baselines",
        "Penalty sweep",
        "Student",
    ]  # as in the configuration
    assert len(rows) == sum(
        pd.read_csv(MEASURED / name / "runs.csv")["run"].nunique() for name in SETTINGS
    )


def test_plots_have_the_numbers_of_the_layers_and_of_every_epoch_and_the_limits(measured):
    run = next(
        run for run in Page(measured.read_text()).data["runs"] if run["id"] == "main_audit-dfa"
    )
    layers, history = (
        pd.read_csv(MEASURED / f"main_audit/{name}.csv").query("run == 'dfa' and seed == 42")
        for name in ("layers", "trajectories")
    )
    (seed,) = (seed for seed in run["seeds"] if seed["seed"] == "seed 42")
    for name in ("hidden_norm", "grad_norm", "growth", "cosine", "rho_at_input"):
        expected = layers.sort_values("layer")[name].dropna().tolist()
        assert [value for value in seed["layer"][name] if value is not None] == pytest.approx(
            expected, rel=1e-4
        )
    last = history[history["layer"] == 4].sort_values("epoch")
    assert seed["epoch"]["epoch"] == last["epoch"].tolist()
    assert seed["epoch"]["test_accuracy"] == pytest.approx(last["test_accuracy"].tolist(), rel=1e-4)
    growth = history.groupby("epoch")["growth"].max().tolist()
    assert seed["epoch"]["growth"] == pytest.approx(growth, rel=1e-4)
    assert (seed["limits"]["growth"], seed["limits"]["reference"]) == (50, 1e-7)


def test_runs_have_the_colours_of_the_figures(measured):
    found, text = Page(measured.read_text()).data["runs"], measured.read_text()
    styles = run_styles(dict.fromkeys(run["id"].partition("-")[2] for run in found))
    for run in found:
        name = re.fullmatch(r"var\((--c-\w+)\)", run["colour"])[1]
        light = re.search(rf"{name}: light-dark\((#\w+), #\w+\);", text)[1]
        assert to_hex(styles[run["id"].partition("-")[2]].colour) == light


def test_claims_are_those_of_the_scorecard(measured, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(["scorecard", "--from", str(measured.parent / "tables")]) == 0
    rows = r"^\| (.+) \| ((?:holds|does not|not run).*) \| (\d+ of \d+ agree)"
    said = re.findall(rows, capsys.readouterr().out, re.M)
    text = " ".join(
        words(claim) for claim in Page(measured.read_text()).all("details", class_="claim")
    )
    assert len(said) > 20
    for sentence, verdict, _ in said:
        assert sentence in text and (verdict == "not run" or f"{verdict} {sentence}" in text)


def test_an_authors_page_has_the_checks_intervals_sentences_and_remarks_of_the_audits(hostile):
    path, audits = hostile
    found = Page(path.read_text())
    rows = [
        words(row)
        for row in found.all("tr")
        if "D1 / (a)" in words(row) or "D3 / (d)" in words(row)
    ]
    for audit in audits:
        assert f"{audit['checks']['scale']['value']:.3g}" in rows[0]
        assert f"{100 * audit['checks']['depth']['value']:.3g}" in rows[1]
    text = words(found.all("article")[0])
    assert NOTES.split("\u2028")[0].strip() in text and "No trajectory was recorded" in text
    may, may_not = sentences(list(map(facts_of, audits)), "network")
    assert (
        all(" ".join(sentence.split()) in text for sentence in may + may_not)
        and "(means of 2 networks;" in text
    )
    assert text.count("file 1") and len(found.data["runs"][0]["seeds"]) == 2


def test_nothing_of_a_stranger_is_markup_and_nothing_is_loaded(hostile, measured):
    for path in (hostile[0], measured):
        text = path.read_text()
        found = Page(text)
        scripts = [one for one in found.all("script") if one.get("type") == "module"]
        assert (
            len(found.all("script")) == 3
            and len(scripts) == 2
            and not found.all("img")
            and not found.all("iframe")
        )
        digests = [
            base64.b64encode(hashlib.sha256(one["text"].encode()).digest()).decode()
            for one in scripts
        ]
        (policy,) = (
            one["content"]
            for one in found.all("meta")
            if one.get("http-equiv") == "Content-Security-Policy"
        )
        assert all(f"'sha256-{digest}'" in policy for digest in digests) and policy.startswith(
            "default-src 'none'"
        )
        places = [
            one[name]
            for one in found.elements
            for name in ("src", "href", "xlink:href")
            if one.get(name)
        ]
        assert all(place.startswith(("#", "data:")) for place in places)
        assert not re.search(r"url\(|@import", " ".join(one["text"] for one in found.all("style")))
    assert HOSTILE in words(Page(hostile[0].read_text()).all("h1")[0])


def test_every_method_in_three_networks_makes_a_moderate_page_soon():
    runs = [
        several({method: {} for method in METHODS}, setting=f"setting{number}")
        for number in range(3)
    ]
    absent = dict.fromkeys(
        ["depth_strict_distance", "depth_strict_interval_low", "depth_strict_interval_high"]
    )
    others = absent | {"scale_free_last": 5.0, "baseline": "dfa+frozen", "losses": (1.0,) * 100}
    tidy = tidy_of(*[row | others for part in runs for row in part])
    tidy = replace(
        tidy, trajectories=tidy.trajectories.assign(growth=tidy.trajectories["hidden_norm"] / 7)
    )
    began = time.monotonic()
    text = page(tidy, [])
    assert len(text) < 1.3e5 * len(METHODS) and time.monotonic() - began < 60
    assert len(Page(text).data["runs"]) == 3 * len(METHODS)


@pytest.mark.parametrize(
    "options", [[], ["a.json", "--from", "results/tidy"], ["--from", "nowhere"]]
)
def test_what_is_no_audit_and_no_folder_of_tables_ends_in_one_line(
    options, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main(["report", "--html", *options]) == 1
    assert (
        len(capsys.readouterr().err.splitlines()) == 1 and not (tmp_path / "report.html").exists()
    )


# --- in a browser ----------------------------------------------------------------------------------------------------


@pytest.fixture
def visit(chromium):
    """Open a page; every test fails if it says something in the console or asks for another file."""
    said, asked, contexts = [], [], []

    def visit(path, width=1280, scheme="light", **options):
        context = chromium.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, **options
        )
        contexts.append(context)
        opened = context.new_page()
        opened.on("console", lambda message: said.append(message.text))
        opened.on("pageerror", lambda error: said.append(str(error)))
        opened.on("request", lambda request: asked.append(request.url.partition("#")[0]))
        opened.goto(path.as_uri())
        opened.wait_for_selector("article:not([hidden]) .plot svg")
        return opened

    yield visit
    for context in contexts:
        context.close()
    assert said == [] and {url for url in asked if not url.startswith(("data:", "blob:"))} <= {
        asked[0]
    }


MORE_SIZES = ((360, "dark"), (768, "light"), (768, "dark"), (1280, "light"))


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark"), *slow(*MORE_SIZES)])
def test_every_width_and_scheme_is_accessible_and_does_not_scroll_sideways(
    measured, visit, width, scheme
):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    opened = visit(measured, width, scheme, bypass_csp=True)  # axe is a script of its own
    opened.select_option("#one", "2")
    opened.wait_for_selector("#comparison .plot svg")
    opened.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert axe.run(opened).response["violations"] == []
    assert opened.evaluate("document.documentElement.scrollWidth") == width
    ground = "getComputedStyle(document.body).backgroundColor"
    before = opened.evaluate(ground)
    assert (before == "rgb(255, 255, 255)") == (scheme == "light")
    opened.click("#theme")
    assert opened.evaluate(ground) != before
    limit = "getComputedStyle(document.querySelector('.plot svg [stroke=\"var(--limit)\"]')).stroke"
    colour = opened.evaluate(limit)
    opened.click("#theme")
    assert opened.evaluate(limit) != colour


def test_runs_are_filtered_by_method_network_data_and_verdict(measured, visit):
    opened = visit(measured)
    kept = ".run-row:not([hidden])"
    everything = opened.locator(kept).count()
    opened.select_option("[data-filter=method]", "dfa")
    opened.select_option("[data-filter=verdict]", "trustworthy")
    assert opened.locator(kept).count() == 0 and opened.is_visible("#none")
    opened.select_option("[data-filter=verdict]", "FAIL")
    methods = opened.locator(kept).evaluate_all("rows => rows.map(row => row.dataset.method)")
    assert (
        set(methods) == {"dfa"}
        and opened.inner_text("#count") == f"{len(methods)} of {everything} runs"
    )
    opened.select_option("[data-filter=data]", "synthetic_teacher")
    assert opened.locator("tr.setting:not([hidden])").count() == opened.locator(kept).count() == 0
    opened.click("#reset")
    opened.select_option("[data-filter=network]", "student_mlp, d = 128, L = 4")
    assert (
        opened.locator(kept).count() == 3
        and opened.locator("tr.setting:not([hidden])").count() == 1
    )


def place_of(run, page):
    """Return the place of a run, `setting-run`, in a page."""
    return [one["id"] for one in Page(page.read_text()).data["runs"]].index(run)


def test_a_run_is_one_key_from_its_evidence_and_back(measured, visit):
    opened = visit(measured)
    dfa = place_of("main_audit-dfa", measured)
    opened.locator(".run-row a", has_text="DFA").first.focus()
    opened.keyboard.press("Enter")
    opened.wait_for_selector("article:not([hidden]) >> text=FAIL(D1+D2+D3)")
    opened.wait_for_function(
        "document.querySelectorAll('article:not([hidden]) .plot svg').length === 9"
    )
    assert opened.evaluate("document.activeElement.id") == f"run-{dfa}"
    assert opened.locator("article:not([hidden])").count() == 1
    opened.focus("#next")
    opened.keyboard.press("Enter")
    opened.wait_for_selector(f"#run-{dfa + 1}:not([hidden])")
    opened.go_back()
    opened.wait_for_selector(f"#run-{dfa}:not([hidden])")
    opened.reload()
    opened.wait_for_selector(f"#run-{dfa}:not([hidden]) .plot svg")  # its address can be passed on


def test_two_runs_stand_side_by_side(measured, visit):
    opened = visit(measured)
    bp, dfa = (place_of(f"main_audit-{method}", measured) for method in ("bp", "dfa"))
    opened.click(f"#run-{bp} .against")
    opened.select_option("#other", str(dfa))
    opened.wait_for_selector("#comparison .plot svg")
    texts = "rows => rows.map(row => [...row.children].map(cell => cell.textContent))"
    head, *rows = opened.locator("#comparison tr").evaluate_all(texts)
    assert head[1:] == ["BP · Main audit", "DFA · Main audit"]
    facts = {name: own for name, *own in rows}
    data = Page(measured.read_text()).data["runs"]
    assert facts == {
        name: [data[bp]["facts"][name], data[dfa]["facts"][name]] for name in data[bp]["facts"]
    }
    assert facts["verdict to quote"] == ["PASS", "FAIL(D1+D2+D3)"]
    lines = opened.locator("#comparison .mark-line path")
    strokes = lines.evaluate_all(
        "lines => [...new Set(lines.map(line => line.getAttribute('stroke')))]"
    )
    assert set(strokes) == {data[bp]["colour"], data[dfa]["colour"]} and len(strokes) == 2


def test_numbers_and_plots_are_downloaded_whole(measured, visit):
    opened = visit(measured, accept_downloads=True)
    with opened.expect_download() as download:
        opened.click("#run-0 .csv")
    table = pd.read_csv(download.value.path())
    layers = pd.read_csv(MEASURED / "main_audit/layers.csv").query("run == 'bp' and seed == 42")
    own = table[
        (table["axis"] == "layer")
        & (table["seed"] == "seed 42")
        & (table["quantity"] == "grad_norm")
    ]
    assert own["value"].tolist() == pytest.approx(layers["grad_norm"].tolist(), rel=1e-4)
    with opened.expect_download() as download:
        opened.click("#run-0 .svg")
    drawn = download.value.path().read_text()
    assert drawn.count("<svg") == 10 and "var(" not in drawn and "currentColor" not in drawn


def test_what_a_stranger_wrote_does_not_run(hostile, visit):
    opened = visit(hostile[0])
    assert opened.title().startswith("</script>") and "taken" not in opened.title().replace(
        "'taken'", ""
    )
    assert HOSTILE in opened.inner_text("h1") and opened.locator("iframe, article img").count() == 0


def test_it_prints_in_light_colours_without_controls(measured, visit):
    opened = visit(measured, scheme="dark")
    opened.emulate_media(media="print")
    assert (
        opened.evaluate("getComputedStyle(document.querySelector('h1')).color") == "rgb(27, 31, 36)"
    )
    assert (
        not opened.is_visible("#theme")
        and not opened.is_visible(".filters")
        and opened.is_visible(".runs thead")
    )
    assert opened.pdf(format="A4").count(b"/Type /Page\n") <= 12
