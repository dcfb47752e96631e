"""Tidy tables read back as written, are of the runs of their paths, and say what every check found."""

import json
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure
from networks import spec_of
from test_protocol import report_of

from fa_audit.core.errors import AuditError
from fa_audit.documents.formats import Table
from fa_audit.experiments.paths import EVIDENCE, TIDY, RunKey
from fa_audit.protocol.evidence import DiagnosticThresholds
from fa_audit.results.figures.files import write_figure
from fa_audit.results.tables.files import write_table
from fa_audit.results.tidy import (
    read_audits,
    read_packed,
    read_tidy,
    trajectories_table,
    write_packed,
    write_tables,
)
from fa_audit.training.trajectory import TRAJECTORY_COLUMNS


def packed(folder, setting, *runs):
    """The evidence of made-up runs, each over two seeds, as the workflow writes it."""
    audits, rows = [], []
    for run in runs:
        for seed in (1, 2):
            key = {"setting": setting, "run": run, "seed": seed}
            spec = spec_of("resmlp", run, seed=seed, depth=1, epochs=1).to_dict()
            audits.append(report_of(0.5).replace(**key, spec=spec, digest="abc"))
            rows += [key | {"epoch": 1, "layer": layer, "test_accuracy": 0.5} for layer in (0, 1)]
    paths = [folder / setting / name for name in EVIDENCE]
    write_packed(paths[0], audits)
    write_tables({paths[1]: pd.DataFrame(rows)})
    return paths


def test_audits_read_back_by_setting_and_what_is_none_is_one_line(tmp_path):
    paths = [*packed(tmp_path, "b", "dfa"), *packed(tmp_path, "a", "dfa", "bp")]
    tidy = read_tidy(paths)
    assert tidy.settings == ("b", "a")
    assert tidy.of("a").work["run"].tolist() == ["bp", "bp", "dfa", "dfa"]
    other = paths[0].rename(paths[0].with_name("moved.json"))
    path = tmp_path / "c/audits.json"
    path.parent.mkdir()
    for content, words in (("", "an empty file"), (other.read_text(), "expected the run")):
        path.write_text(content)
        with pytest.raises(AuditError, match=f"c/audits.json: .*{words}"):
            read_tidy([path])


def test_packed_evidence_that_does_not_belong_together_is_refused(tmp_path):
    audits, history = paths = packed(tmp_path, "main", "dfa")
    table, whole = pd.read_csv(history), audits.read_text()
    for change, words in (
        (table[:-1], "no rows of epoch 1 state 1"),
        (table.drop(columns="epoch"), "epoch"),
        (table.assign(test_accuracy="high"), "test_accuracy"),
        (table.assign(test_accuracy=0.4), "0.4, but .*0.5"),
        (table.assign(seed=3), "seed3"),
    ):
        write_tables({history: change})
        with pytest.raises(AuditError, match=f"main/trajectories.csv: .*{words}"):
            read_tidy(paths)
    one, other = read_packed(audits)
    write_packed(audits, [one, other.replace(thresholds=DiagnosticThresholds.of({"growth": 9.0}))])
    with pytest.raises(AuditError, match=r"dfa/seed2: another run than .*thresholds\.growth"):
        read_tidy([audits])
    records = dict.fromkeys(json.loads(whole)["reports"])
    for reports, words in ((records, "changed or damaged"), ({}, "found no reports")):
        audits.write_text(json.dumps({"reports": reports}))
        with pytest.raises(AuditError, match=words):
            read_tidy([audits])


def test_a_trajectory_is_of_the_run_that_its_path_names_and_whole(tmp_path):
    keys = [RunKey("s", "dfa+penalty1e-2", seed) for seed in (10, 9)]
    paths = [tmp_path / key.path("trajectories", "csv") for key in keys]
    spec = spec_of("resmlp", "dfa", depth=1, epochs=2, penalty=0.01).to_dict()
    audits = [report_of(0.5).replace(**key._asdict(), spec=spec) for key in keys]
    history = pd.DataFrame(0.5, range(4), TRAJECTORY_COLUMNS).assign(
        epoch=[1, 1, 2, 2], layer=[0, 1, 0, 1]
    )
    write_tables(dict.fromkeys(paths, history))
    table = trajectories_table(paths, audits)
    assert table.columns.tolist() == ["setting", "run", "seed", *TRAJECTORY_COLUMNS]
    assert table["seed"].tolist() == [9] * 4 + [10] * 4 and set(table["run"]) == {"dfa+penalty1e-2"}
    for change, words in (
        (history[::-1], "out of order"),
        (history.assign(test_accuracy=0.9), "the test accuracy 0.9, but .*0.5"),
    ):
        write_tables({paths[0]: change})
        with pytest.raises(AuditError, match=f"seed10.csv: .*{words}"):
            trajectories_table(paths, audits)


def test_an_audit_of_another_run_than_its_path_says_is_refused(tmp_path):
    own = RunKey("s", "dfa", 1)
    path = tmp_path / own.path("audits", "json")
    spec = spec_of("resmlp", "dfa").to_dict()
    audit = report_of().replace(**own._asdict(), spec=spec)
    audit.write(path)
    assert read_audits([path])[0].run == "dfa"
    audit.replace(seed=2).write(path)
    with pytest.raises(
        AuditError, match=r"of s/dfa/seed2; expected the run of its path, s/dfa/seed1\. Delete it"
    ):
        read_audits([path])
    report_of().write(path)
    with pytest.raises(AuditError, match="expected an audit of a trained run"):
        read_audits([path])


def figure_of_shown(tidy, *, title, labels, thresholds):
    note_shown(tidy)
    return Figure()


def table_of_shown(tidy, *, title, labels):
    note_shown(tidy)
    return Table(title, ("n",), (), pd.DataFrame())


def note_shown(tidy):
    runs = {name: sorted(set(getattr(tidy, name)["run"])) for name in TIDY}
    Path("shown.json").write_text(json.dumps({"settings": tidy.settings} | runs), encoding="utf-8")


@pytest.mark.parametrize(
    ("write", "kind", "ending"), [(write_figure, "figure", "pdf"), (write_table, "table", "md")]
)
def test_a_figure_or_table_shows_the_runs_it_names(write, kind, ending, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = [*packed(tmp_path, "both", "bp", "dfa"), *packed(tmp_path, "first", "bp")]
    entry = {"kind": f"test_tidy:{kind}_of_shown", "title": "Shown", "labels": {}, "thresholds": {}}
    write(entry, read_tidy(paths, ["dfa"]), paths, [f"shown.{ending}"], "shown.origin.json")
    shown = json.loads(Path("shown.json").read_text(encoding="utf-8"))
    assert shown == {"settings": ["both"]} | {name: ["dfa"] for name in TIDY}
    with pytest.raises(AuditError, match=r"^both, first: unknown run 'ep'; known: bp, dfa"):
        read_tidy(paths, ["ep"])
