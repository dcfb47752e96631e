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
from fa_audit.methods import METHODS
from fa_audit.methods.dfa import DFA
from fa_audit.networks.trace import trace
from fa_audit.results.tidy import layers_table, runs_table
from fa_audit.training.learner import build
from fa_audit.training.loop import block_credits, train
from fa_audit.training.trajectory import read_trajectory, trajectory_csv


@pytest.mark.parametrize("residual", [True, False])
def test_states_credits_and_residuals_are_medians_over_128_and_256_samples(
    make_spec, dataset, residual
):
    images = torch.cat([dataset.test_images] * 20)[:300]
    labels = torch.cat([dataset.test_labels] * 20)[:300]
    images[128:256], images[256:] = 255 - images[128:256], 0  # the last do not count
    large = replace(dataset, test_images=images, test_labels=labels)
    learner = build(make_spec("dfa", residual=residual), dataset.image_shape, dataset.classes)
    for parameter in learner.network.blocks.parameters():
        parameter.data *= 3
    report, norm, found = audit(learner, large, 0.5), torch.linalg.vector_norm, []
    layer, credit = report.layers[1], report.credit[1]
    for count in (128, 256):
        x, y = large.normalise(images[:count]), labels[:count]
        states, gradients = states_and_gradients(learner.network, x, y)
        residual_norm = norm(trace(learner.network, x, local=True).residuals[1], dim=1)
        samples = {
            "hidden_norm": norm(states[1], dim=1),
            "grad_norm": norm(gradients[1], dim=1),
            "residual_ratio": residual_norm / norm(states[1], dim=1),
            "displacement": norm(states[1] - states[0], dim=1) / norm(states[0], dim=1),
            "cosine_to_embedding": torch.cosine_similarity(states[1], states[0], dim=1),
        }
        medians = {name: values.median().item() for name, values in samples.items()}
        found.append(pytest.approx(medians, rel=1e-4))
        if count == 128:
            a = norm(block_credits(learner, x, y)[1], dim=1).median().item()
    fewer = {"hidden_norm": layer.hidden_norm, "grad_norm": layer.grad_norm}
    fewer["residual_ratio"] = credit["residual_ratio"].value
    fewer["displacement"] = layer.displacement.value
    fewer["cosine_to_embedding"] = layer.cosine_to_embedding.value
    more = {name.removesuffix("_256"): value for name, value in layer.more_samples.items()}
    assert [fewer, more] == found and fewer != found[1]
    assert credit["credit_norm"].value == pytest.approx(a, rel=1e-5)
    assert report.layers[3].more_samples["residual_ratio_256"] is None


# These need not depend on the network's states.
FIXED = {"feature_drift", "credit_norm"}


@pytest.mark.parametrize("method", METHODS)
def test_weights_that_are_not_finite_leave_reasons_and_no_numbers(make_spec, dataset, method):
    learner = build(make_spec(method), dataset.image_shape, dataset.classes)
    learner.network.embed[1].weight.data[0, 0] = math.nan
    report = audit(learner, dataset, 0.5)
    for entries in (*report.credit, report.deep):
        measured = {name for name, entry in entries.items() if entry.value is not None}
        assert measured <= FIXED and all(entries[name].reason for name in entries.keys() - FIXED)
    assert report.feature_drift["embed.1.weight"].value is None
    json.dumps(report.to_dict(), allow_nan=False)


@dataclass(frozen=True)
class Single(DFA):
    def credits(self, network, trace, labels, state):
        logits = trace.logits @ torch.eye(network.classes)
        return super().credits(network, replace(trace, logits=logits), labels, state)


def test_a_method_that_insists_on_float32_keeps_its_cosines(make_spec, dataset):
    learner = build(make_spec("dfa"), dataset.image_shape, dataset.classes, Single())
    report = audit(learner, dataset, 0.5)
    assert report.deep["cosine"].value is not None
    block = report.credit[1]
    for entry in (block["rho"], block["fresh_b_cosine"], report.deep["fresh_b_null"]):
        assert entry.value is None and "float64 recomputation failed" in entry.reason


def test_a_trajectory_survives_its_csv(make_spec, dataset, tmp_path):
    history = train(make_spec("dfa"), dataset).history
    (tmp_path / "t.csv").write_text(trajectory_csv(history))
    assert read_trajectory(tmp_path / "t.csv") == history
    for text in ("epoch,layer\n1,0\n", trajectory_csv([history[0] | {"grad_norm": None}])):
        (tmp_path / "t.csv").write_text(text)
        with pytest.raises(AuditError, match=r"t\.csv: expected a trajectory with the columns"):
            read_trajectory(tmp_path / "t.csv")


def test_tidy_tables_have_one_row_per_run_and_per_state(make_spec, dataset):
    run = train(make_spec("dfa"), dataset)
    accuracies = {"accuracy": run.accuracy, "own_frozen_acc": 0.4, "bp_frozen_acc": 0.6}
    baselines = {"own_frozen": ("dfa+frozen", 0.4), "bp_frozen_acc": 0.6}
    report = audit(run.learner, dataset, run.accuracy, **baselines, trajectory=run.history)
    assert report.checks["depth"].value == pytest.approx(run.accuracy - 0.4)
    assert report.checks["depth_strict"].value == pytest.approx(run.accuracy - 0.6)
    roles = {"own": {"accuracy": 0.4}, "bp": {"accuracy": 0.6}}
    spec = run.learner.spec.to_dict()
    entry = report.replace(setting="s", run="dfa", seed=1, spec=spec, baseline_runs=roles)
    runs, layers = runs_table([entry]).iloc[0], layers_table([entry])
    null = report.deep["fresh_b_null"]
    expected = accuracies | {"fresh_b_mean": null.value, "fresh_b_std": null.std}
    expected["max_growth"] = max(layer.growth for layer in report.layers[:-1])
    for name, found in entry.checks.items():
        expected[f"{name}_fires"] = found.fires
    for name in ("cosine", "clamped_cosine", "rho", "nudging"):
        expected[f"deep_{name}"] = report.deep[name].value
    assert runs[list(expected)].to_dict() == expected
    # The baselines of a run that was stopped had a larger budget.
    stopped = runs_table([entry.replace(stopped_after=1)]).iloc[0]
    assert stopped[["own_frozen_acc", "bp_frozen_acc"]].isna().all() and stopped["finite"]
    assert layers["layer"].tolist() == [0, 1, 2, 3] and pd.isna(layers["cosine"].iloc[3])
    for name in ("cosine", "rho", "nudging", "rho_random", "feature_drift"):
        assert layers[name].tolist()[:3] == [block[name].value for block in report.credit]
