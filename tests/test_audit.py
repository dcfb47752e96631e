"""The audit of a run: credits against gradients, and what reports and tidy tables keep of it."""

import json
import math
from dataclasses import dataclass, replace

import pandas as pd
import pytest
import torch
from networks import states_and_gradients

from fa_audit.audit.run_audit import audit
from fa_audit.core.errors import AuditError
from fa_audit.data.dataset import evaluation_batches
from fa_audit.methods import METHODS
from fa_audit.methods.dfa import DFA
from fa_audit.networks.trace import trace
from fa_audit.results.tidy import layers_table, runs_table
from fa_audit.training.learner import build
from fa_audit.training.loop import block_credits, train
from fa_audit.training.trajectory import read_trajectory, trajectory_csv


def test_credits_residuals_and_states_are_compared_by_medians_over_samples(make_spec, dataset):
    learner = build(make_spec("dfa"), dataset.image_shape, dataset.classes)
    for parameter in learner.network.blocks.parameters():
        parameter.data *= 3
    report, (x, labels) = audit(learner, dataset, 0.5), evaluation_batches(dataset)[0]
    run, credits = trace(learner.network, x, local=True), block_credits(learner, x, labels)
    start, *_, last = (h.detach() for h in run.states)
    norm, layer = torch.linalg.vector_norm, report.layers[-1]
    expected = {
        report.credit[1]["credit_norm"].value: norm(credits[1], dim=1),
        report.credit[1]["residual_ratio"].value: norm(run.residuals[1], dim=1)
        / norm(run.states[1], dim=1),
        layer.displacement.value: norm(last - start, dim=1) / norm(start, dim=1),
        layer.cosine_to_embedding.value: torch.cosine_similarity(last, start, dim=1),
    }
    assert len(expected) == 4 and report.layers[0].displacement.value == 0
    for found, per_sample in expected.items():
        assert found == pytest.approx(per_sample.median().item(), rel=1e-5)


@pytest.mark.parametrize("residual", [True, False])
def test_states_are_measured_on_256_samples_too(make_spec, dataset, residual):
    images = torch.cat([dataset.test_images] * 20)[:300]
    labels = torch.cat([dataset.test_labels] * 20)[:300]
    images[128:256], images[256:] = 255 - images[128:256], 0  # the last do not count
    large = replace(dataset, test_images=images, test_labels=labels)
    learner = build(make_spec("dfa", residual=residual), dataset.image_shape, dataset.classes)
    x, y, layers = (
        large.normalise(images[:256]),
        labels[:256],
        audit(learner, large, 0.5).layers,
    )
    states, gradients = states_and_gradients(learner.network, x, y)
    residuals = [r.detach() for r in trace(learner.network, x, local=True).residuals]
    norm = torch.linalg.vector_norm
    expected = {
        "hidden_norm_256": norm(states[1], dim=1),
        "grad_norm_256": norm(gradients[1], dim=1),
        "residual_ratio_256": norm(residuals[1], dim=1) / norm(states[1], dim=1),
        "displacement_256": norm(states[1] - states[0], dim=1) / norm(states[0], dim=1),
        "cosine_to_embedding_256": torch.cosine_similarity(states[1], states[0], dim=1),
    }
    found = layers[1].more_samples
    assert set(found) == set(expected) and layers[3].more_samples["residual_ratio_256"] is None
    for name, per_sample in expected.items():
        assert found[name] == pytest.approx(per_sample.median().item(), rel=1e-4), name
    assert found["hidden_norm_256"] != pytest.approx(layers[1].hidden_norm, rel=1e-4)


def test_an_audit_keeps_the_two_frozen_baselines_apart(make_spec, dataset):
    learner = build(make_spec("dfa"), dataset.image_shape, dataset.classes)
    report = audit(
        learner, dataset, 0.5, own_frozen=("dfa+frozen", 0.45), bp_frozen_acc=0.49, name="dfa"
    )
    found = [(report.checks[name].fires, report.checks[name].value) for name in DEPTHS]
    assert found == [(False, pytest.approx(0.05)), (True, pytest.approx(0.01))]
    assert report.baselines.own_name == "dfa+frozen"
    assert report.three_check_verdict == "PASS"


DEPTHS = ("depth", "depth_strict")
FIXED = ("feature_drift", "credit_norm")  # which need not depend on the network's states


@pytest.mark.parametrize("method", METHODS)
def test_weights_that_are_not_finite_leave_reasons_and_no_numbers(make_spec, dataset, method):
    learner = build(make_spec(method), dataset.image_shape, dataset.classes)
    learner.network.embed[1].weight.data[0, 0] = math.nan
    report = audit(learner, dataset, 0.5)
    of_blocks = [
        entry for block in report.credit for name, entry in block.items() if name not in FIXED
    ]
    assert len(of_blocks) == 54 and len(report.deep) == 14
    assert all(
        entry.value is None and entry.reason for entry in [*of_blocks, *report.deep.values()]
    )
    assert report.feature_drift["embed.1.weight"].value is None
    json.dumps(report.to_dict(), allow_nan=False)


@dataclass(frozen=True)
class Single(DFA):
    def credits(self, network, trace, labels, state):
        return super().credits(
            network, replace(trace, logits=trace.logits @ torch.eye(network.classes)), labels, state
        )


def test_a_method_that_insists_on_float32_keeps_its_cosines(make_spec, dataset):
    report = audit(
        build(make_spec("dfa"), dataset.image_shape, dataset.classes, Single()), dataset, 0.5
    )
    assert report.deep["cosine"].value is not None
    for entry in (
        report.credit[1]["rho"],
        report.credit[1]["fresh_b_cosine"],
        report.deep["fresh_b_null"],
    ):
        assert entry.value is None and entry.reason.startswith(
            "float64 recomputation failed: RuntimeError"
        )


def test_a_trajectory_survives_its_csv_and_its_last_rows_are_what_the_audit_measures(
    make_spec, dataset, tmp_path
):
    run = train(make_spec("dfa"), dataset)
    (tmp_path / "t.csv").write_text(trajectory_csv(run.history))
    assert read_trajectory(tmp_path / "t.csv") == run.history
    for text in ("epoch,layer\n1,0\n", trajectory_csv([run.history[0] | {"grad_norm": None}])):
        (tmp_path / "t.csv").write_text(text)
        with pytest.raises(
            AuditError, match=r"t\.csv: expected a trajectory with the columns epoch, layer, hidden"
        ):
            read_trajectory(tmp_path / "t.csv")
    report, last = audit(run.learner, dataset, run.accuracy), run.history[-4:]
    assert [entry["hidden_norm"] for entry in last] == report.residual_norms
    assert [entry["grad_norm"] for entry in last] == report.bp_grad_norms
    assert [entry["cosine"] for entry in last[:-1]] == [
        block["cosine"].value for block in report.credit
    ]


def test_tidy_tables_have_one_row_per_run_and_per_state(make_spec, dataset):
    run = train(make_spec("dfa"), dataset)
    baselines = {"own_frozen": ("dfa+frozen", 0.4), "bp_frozen_acc": 0.6}
    report = audit(run.learner, dataset, run.accuracy, **baselines, trajectory=run.history)
    roles = {"own": {"accuracy": 0.4}, "bp": {"accuracy": 0.6}}
    spec = run.learner.spec.to_dict()
    entry = report.replace(setting="s", run="dfa", seed=1, spec=spec, baseline_runs=roles)
    runs, layers = runs_table([entry]).iloc[0], layers_table([entry])
    accuracies = {"accuracy": run.accuracy, "own_frozen_acc": 0.4, "bp_frozen_acc": 0.6}
    assert runs[list(accuracies)].to_dict() == accuracies
    fires = {f"{name}_fires": found.fires for name, found in entry.checks.items()}
    assert runs[list(fires)].to_dict() == fires
    # The baselines of a run that was stopped had a larger budget.
    stopped = runs_table([entry.replace(stopped_after=1)]).iloc[0]
    assert stopped[["own_frozen_acc", "bp_frozen_acc"]].isna().all() and stopped["finite"]
    assert runs["max_growth"] == max(layer.growth for layer in report.layers[:-1])
    for name in ("cosine", "clamped_cosine", "rho", "nudging"):
        assert runs[f"deep_{name}"] == report.deep[name].value
    null = report.deep["fresh_b_null"]
    assert runs[["fresh_b_mean", "fresh_b_std"]].tolist() == [null.value, null.std]
    assert layers["layer"].tolist() == [0, 1, 2, 3] and pd.isna(layers["cosine"].iloc[3])
    for name in ("cosine", "rho", "nudging", "rho_random", "feature_drift"):
        assert layers[name].tolist()[:3] == [block[name].value for block in report.credit]
