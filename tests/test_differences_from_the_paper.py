"""Numbers that docs/reproduction.md gives for differences from the paper's code, against tables of
measured runs and against small networks that are trained here.
"""

import copy
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from measured_runs import SEEDS, every_setting, near, of, read
from projects import ROOT

from fa_audit import bp_grad_norms, diagnose, residual_norms
from fa_audit.audit.credit_metrics import EPS
from fa_audit.core.vectors import cosine, growth, median_norm
from fa_audit.data.dataset import evaluation_batches
from fa_audit.data.digits import digits
from fa_audit.experiments.spec import parse_run
from fa_audit.networks.trace import reference
from fa_audit.training.loop import block_credits, train

PAGE = (ROOT / "docs/reproduction.md").read_text().partition("## Where this package differs")[2]
DIGITS = replace(digits(ROOT), name="digits")
X, LABELS = evaluation_batches(DIGITS)[0]
DEMO = yaml.safe_load((ROOT / "configs/demo.yaml").read_text())["settings"]["demo"]
NETWORKS = {  # with the epochs of their trainings
    "demo": (DEMO["architecture"], 30),
    "resnet": ({"name": "small_resnet", "width": 16, "depth": 4}, 10),
    "cnn": ({"name": "bn_cnn", "width": 32, "depth": 3}, 10),
}
MAIN, SWEEP = 123, 42  # seeds of the main audit and of the penalty sweep
MOMENTUM = torch.nn.BatchNorm2d(1).momentum
# Without augmentation; in a schedule of so many epochs the first 30 have the same learning rate.
NEITHER = {"padding": 0, "epochs": 10**5}


@cache
def trained(name, run, seed=42, *, epochs=None, padding=1):
    """Train one of `NETWORKS` on digits; return the learner and its audit."""
    shape, usual = NETWORKS[name]
    spec = parse_run(run).spec(
        depth=shape["depth"], dataset="digits", architecture=shape["name"],
        architecture_options=(("depth", shape["depth"]), ("width", shape["width"])),
        epochs=epochs or usual, batch_size=DEMO["batch_size"], seed=seed,
    )  # fmt: skip
    found = train(spec, replace(DIGITS, padding=padding))
    return found.learner, diagnose(found.learner.network, [(X, LABELS)], found.accuracy)


def with_skip(learner, skip):
    """The trained network, run with skips of another kind."""
    network = copy.deepcopy(learner.network).eval()
    network.skip = skip
    return network


QUANTITIES = {
    "accuracy": lambda _, report: report.headline_acc,
    "growth": lambda _, report: report.checks["scale"].value,
    "state": lambda _, report: report.residual_norms[-1],
    "gradient": lambda _, report: report.bp_grad_norms[-1],
    "without skips": lambda learner, _: bp_grad_norms(with_skip(learner, "none"), X, LABELS)[-1],
}


def of_demo(quantity, run, **options):
    """The least and the largest value of the seeds."""
    networks = [trained("demo", run, seed, **options) for seed in SEEDS]
    values = [QUANTITIES[quantity](*network) for network in networks]
    return min(values), max(values)


def deep_cosine(learner, skip):
    """Mean cosine of the credits with the gradients of the network that has this skip, l >= 1."""
    gradients = reference(with_skip(learner, skip), X, LABELS).gradients
    pairs = list(zip(block_credits(learner, X, LABELS), gradients))
    return np.mean([cosine(a, g).value for a, g in pairs[1:]])


def norms(name, run):
    return trained(name, run)[1].residual_norms


@torch.no_grad()
def flattened(name, run):
    states = trained(name, run)[0].network.eval()(X, return_hidden=True)[1]
    return [median_norm(h.flatten(1)) for h in states]


def skip_twice(run):
    network = with_skip(trained("resnet", run)[0], "outside")
    return residual_norms(network, X), bp_grad_norms(network, X, LABELS)


def rho(setting, run, seed):
    """``||h_L||``, and means over l >= 1: rho of the gradient and of the credit, in both precisions."""
    layers = read(setting).layers.query("run == @run and seed == @seed")
    columns = [f"rho{which}_at_input" for which in ("_bp_float32", "_bp", "_float32", "")]
    means = layers.query("layer >= 1")[columns].mean()
    return layers["hidden_norm"].iloc[-1:], *([] if np.isnan(mean) else [mean] for mean in means)


MEASURED = {
    "main, `bp`": lambda: rho("main_audit", "bp", MAIN),
    "sweep, `state_bridge+penalty1e-2`": lambda: rho("penalty_sweep", "state_bridge+penalty1e-2", SWEEP),
    "sweep, `dfa+penalty1e-2`": lambda: rho("penalty_sweep", "dfa+penalty1e-2", SWEEP),
    "main, `fa`": lambda: rho("main_audit", "fa", MAIN),
    "main, `dfa`": lambda: rho("main_audit", "dfa", MAIN),
}  # fmt: skip
TRAINED = {
    "`‖g_L‖`, untrained": lambda: (of_demo("gradient", "bp+epoch0"), of_demo("without skips", "bp+epoch0")),
    "`‖g_L‖` of `bp`": lambda: (of_demo("gradient", "bp"), of_demo("without skips", "bp")),
    "`‖g_L‖` of `dfa`": lambda: (of_demo("gradient", "dfa"), of_demo("without skips", "dfa")),
    "deep cosine of `bp` at the blocks' inputs, seed 42": lambda: (
        [deep_cosine(trained("demo", "bp")[0], skip)] for skip in ("outside", "none")
    ),
    "`‖h_0‖` to `‖h_3‖` of BP": lambda: (norms("cnn", "bp"), flattened("cnn", "bp")),
    "growth of the last block (map to vector) of BP, DFA": lambda: (
        [growth(measure("cnn", run))[-1] for run in ("bp", "dfa")] for measure in (norms, flattened)
    ),
    "`‖g_0‖` to `‖g_3‖` of BP": lambda: (
        trained("cnn", "bp")[1].bp_grad_norms,
        [layer.grad_norm_position_mean for layer in trained("cnn", "bp")[1].layers],
    ),
    "`‖h_L‖`, `‖g_0‖` of BP": lambda: (
        (states[-1], slopes[0]) for states, slopes in (
            (norms("resnet", "bp"), trained("resnet", "bp")[1].bp_grad_norms), skip_twice("bp")
        )
    ),
    "largest growth of DFA": lambda: (
        [max(growth(states))] for states in (norms("resnet", "dfa"), skip_twice("dfa")[0])
    ),
    "`‖h_L‖` after 5 epochs": lambda: (of_demo("state", "dfa", epochs=5), of_demo("state", "dfa+epoch5")),
    "`‖g_L‖` after 5 epochs": lambda: (of_demo("gradient", "dfa", epochs=5), of_demo("gradient", "dfa+epoch5")),
    "accuracy of FA": lambda: (of_demo("accuracy", "fa"), of_demo("accuracy", "fa+epoch30", **NEITHER)),
    "`‖g_L‖` of BP": lambda: (of_demo("gradient", "bp"), of_demo("gradient", "bp+epoch30", **NEITHER)),
    "max growth of DFA": lambda: (of_demo("growth", "dfa"), of_demo("growth", "dfa+epoch30", **NEITHER)),
}  # fmt: skip


def table_rows():
    """The rows of the subsections' tables: their cells by the first one."""
    tables = re.findall(r"^[-| ]+\n((?:\|.*\n?)+)", PAGE.partition("\n### ")[2], re.MULTILINE)
    rows = [line.strip("| ").split(" | ") for table in tables for line in table.splitlines()]
    assert len({first for first, *_ in rows}) == len(rows)
    return {first: cells for first, *cells in rows}


def numbers(cell):
    """The numbers of a cell, each with half a unit of its last digit."""
    for text in re.findall(r"-?\d{1,3}(?:,\d{3})+|-?\d*\.?\d+(?:e-?\d+)?", cell):
        mantissa, _, power = text.replace(",", "").partition("e")
        unit = 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))
        yield float(f"{mantissa}e{power or 0}"), unit / 2


def check_row(row, found, tolerance):
    for cell, values in zip(table_rows()[row], found, strict=True):
        for (stated, half), value in zip(numbers(cell), values, strict=True):
            assert abs(stated - value) <= tolerance * abs(value) + 1.001 * half, (cell, value)


def test_the_document_names_the_networks_that_are_trained_here():
    resnet, cnn = (NETWORKS[name][0] for name in ("resnet", "cnn"))
    demo, digits = NETWORKS["demo"][1], NETWORKS["cnn"][1]
    for words in (
        f"the main audit (*main*), seed {MAIN}, and the penalty sweep (*sweep*), seed {SWEEP}",
        f"`make demo` after {demo} epochs; ranges over the seeds {SEEDS[0]}, {SEEDS[1]} and {SEEDS[2]}",
        f"a SmallResNet (d = {resnet['width']}, L = {resnet['depth']}, maps of 8 x 8)",
        f"a BatchNorm CNN (d = {cnn['width']}, L = {cnn['depth']}) on the demo's data",
        f"in batches of {DEMO['batch_size']}; {digits} epochs, seed 42",
    ):
        assert words in " ".join(PAGE.split())


def test_every_row_has_a_test():
    assert table_rows().keys() == MEASURED.keys() | TRAINED.keys()


@pytest.mark.parametrize("row", MEASURED)
def test_a_row_is_in_the_measured_runs(row):
    check_row(row, MEASURED[row](), 0)


@pytest.mark.slow
@pytest.mark.parametrize("row", TRAINED)
def test_a_row_has_the_numbers_of_networks_trained_again(row):
    # Kernels of another processor change these numbers by a few percent.
    check_row(row, TRAINED[row](), 0.1)


def judged_differently():
    """Measured audits that do not fail by three checks, although one of them fires: runs, verdicts and checks."""
    found = []
    for run, verdict, audit in every_setting().runs[["run", "three_check", "audit"]].to_numpy():
        fires = [name for name in ("scale", "reference", "depth") if audit.checks[name].fires]
        if fires and not verdict.startswith("FAIL"):
            found.append((run, verdict, *fires))
    return found


def deviations():
    """The range of the standard deviation on 128 images, in points, from DFA's accuracy to BP's."""
    ends = [of("main_audit", run, "accuracy", MAIN) for run in ("dfa", "bp")]
    chances = np.linspace(*ends, 1000)
    points = 100 * np.sqrt(chances * (1 - chances) / 128)
    stated = near([points.min(), points.max()], 3.9, 4.4, decimals=1)
    return stated and near(ends, 0.27, 0.61, decimals=2)


def cosines(run, column="cosine_at_input"):
    return read("main_audit").layers.query("run == @run and seed == @MAIN")[column].dropna()


def clamping(run):
    return (cosines(run) - cosines(run, "clamped_cosine_at_input")).abs().max()


def published():
    rows = pd.read_csv(ROOT / "docs/reproduction/scorecard.csv").query(
        "setting == 'penalty_sweep' and run == 'dfa+penalty1e-2' and kind == 'value' and verdict == 'agrees'"
    )
    return float(rows.set_index("quantity").loc["deep_clamped_cosine_at_input", "published"])


def of_ep():
    """EP's mean cosines, l >= 1, of movements with the gradient at ``h_l``: of ``h_{l+1}``, of ``h_l``."""
    layers = read("main_audit").layers.query("run == 'ep' and seed == 42").set_index("layer")
    return layers["cosine_at_input"][1:].mean(), layers["cosine"][:3].mean()


STATED = {
    "at the blocks' inputs .676 to .876 on CIFAR (main)": lambda: near(sorted(cosines("bp"))[::3], 0.676, 0.876),
    "judge nine complete audits of `reference/measured/` differently: D1 fires, D2 and D3 do not, for `fa` or `dfa`:"
    " `PASS` here, `FAIL` by the paper's code": lambda: (
        sorted(judged_differently()) == [("dfa", "PASS", "scale")] * 3 + [("fa", "PASS", "scale")] * 6
    ),
    "an accuracy of .27 (CIFAR, main: `dfa`) to .61 (`bp`) has a standard deviation of 3.9 to 4.4 points, about twice"
    " D3's limit": deviations,
    "deep cosine of `dfa+penalty1e-2` on the sweep, .151, agrees with the network's own forward pass: .147 (three"
    " seeds)": lambda: (
        near(of("penalty_sweep", "dfa+penalty1e-2", "deep_cosine_at_input").mean(), 0.147) and published() == 0.151
    ),
    "clamping changes the deep cosine of `dfa` from -.0070 to -.0007": lambda: near(
        [cosines("dfa", name)[1:].mean() for name in ("cosine_at_input", "clamped_cosine_at_input")],
        -0.0070, -0.0007, decimals=4,
    ),
    "the cosines of `bp` and `fa` by less than 1e-6 in every block": lambda: max(clamping("bp"), clamping("fa")) < 1e-6,
    "rho perturbs a state by a vector of length 1e-3. At a norm of 1e4, float32 rounding changes the state about as"
    " much": lambda: EPS == 1e-3 and 0.5 < 1e4 * torch.finfo(torch.float32).eps / EPS < 2,
    "equal one with momentum .19 in place of .1": lambda: near([MOMENTUM, 1 - (1 - MOMENTUM) ** 2], 0.1, 0.19),
    "BatchNorm CNN (maps of 16, 4, 4 and 1 positions)": lambda: (
        [layer.positions for layer in trained("cnn", "bp+epoch0")[1].layers] == [16, 4, 4, 1]
    ),
    "EP's deep cosine at the blocks' inputs is .982 here and .986 by the paper's code": lambda: (
        near(of_ep(), 0.982, 0.986)
    ),
}  # fmt: skip


@pytest.mark.parametrize("words", STATED)
def test_a_stated_difference_is_in_the_document_and_in_the_tables(words):
    assert words in " ".join(PAGE.split()) and STATED[words]()
