"""Break the product on purpose, one promise at a time: the tests named beside each mutation must
notice.

    python tests/mutations.py                    # all, each against its test files: some minutes
    python tests/mutations.py fa-transpose ...   # only these
    python tests/mutations.py --jobs 8           # eight at a time

Works on copies in a temporary folder. Exit status: 0 all caught, 1 one is missed or no longer
applies, 2 the tests fail without any mutation.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
NOT_COPIED = {".git", ".venv", ".snakemake", "__pycache__", ".pytest_cache", ROOT / "results"}
CHEAP = "not matrix and not faults and not slurm and not extras"  # with the slow ones
FAILED = 1  # pytest's exit status where a test fails; others mean that the tests did not run


class Mutation(NamedTuple):
    """One edit of the product.

    Attributes:
        file: relative to src/fa_audit, or to the root if it is not there.
        old: text that stands exactly once in the file.
        new: what replaces it.
        breaks: the promise that it breaks.
        tests: test files that must notice, without ``test_`` and ``.py``.
    """

    file: str
    old: str
    new: str
    breaks: str
    tests: str

    @property
    def path(self) -> Path:
        """The file, relative to the root."""
        inside = Path("src/fa_audit") / self.file
        return inside if (ROOT / inside).exists() else Path(self.file)

    def test_files(self) -> list[str]:
        """The named test files, relative to the root."""
        return [f"tests/test_{name}.py" for name in self.tests.split()]

    def apply(self, copy: Path) -> None:
        """Break a copy of the project."""
        text = (copy / self.path).read_text(encoding="utf-8")
        (copy / self.path).write_text(text.replace(self.old, self.new), encoding="utf-8")


MUTATIONS: dict[str, Mutation] = {
    name: Mutation(*parts)
    for name, *parts in (
        # --- methods: signs, scales, transposes, missing terms
        ("fa-transpose", "methods/fa.py", "credit @ state[layer]", "credit @ state[layer].T",
         "a_{l-1} = a_l B_l", "architectures"),
        ("fa-variance", "methods/method.py", "shape[fan_in] ** -0.5", "shape[fan_in] ** -1.0",
         "entries of B are N(0, 1/d)", "engine"),
        ("top-batch-mean", "methods/method.py", "[0] / len(labels)", "[0]",
         "FA's output gradient is that of the batch mean", "architectures"),
        ("error-sign", "methods/method.py", "logits.softmax(dim=-1) - one", "logits.softmax(dim=-1) + one",
         "e = softmax(logits) - y", "engine"),
        ("dfa-variance", "methods/dfa.py", "for width in widths], 1, generator)", "for width in widths], 0, generator)",
         "entries of B are N(0, 1/C)", "engine"),
        ("dfa-embedding", "methods/dfa.py", "state[0 if shared else depth].T)", "state[depth - 1].T)",
         "DFA teaches the embedding through B_0", "architectures"),
        ("drtp-shift", "methods/drtp.py", "1 / network.classes - one_hot", "-one_hot",
         "the credits of all classes sum to zero", "methods"),
        ("drtp-sign", "methods/drtp.py", "1 / network.classes - one_hot", "one_hot - 1 / network.classes",
         "DRTP's credit descends the loss", "methods"),
        ("usf-scale", "methods/usf.py", "** -0.5", "** -1.0", "feedback has magnitude 1/sqrt(fan_in)", "methods"),
        ("usf-sign", "methods/usf.py", "weight.detach().sign()", "weight.detach().sign().abs()",
         "feedback has the signs of the weights", "methods"),
        ("frsf-magnitudes", "methods/frsf.py", "buffer.abs_()", "pass",
         "random magnitudes are not negative", "methods"),
        ("brsf-redraw", "methods/brsf.py", "state.redraw(randomness)", "pass",
         "magnitudes are drawn anew for every minibatch", "methods"),
        ("kolen-pollack-gradient", "methods/kolen_pollack.py", "= weight.grad", "= -weight.grad",
         "feedback weights make the forward weights' steps", "field_rules"),
        ("kolen-pollack-decay", "methods/kolen_pollack.py", "decays_state: ClassVar[bool] = True",
         "decays_state: ClassVar[bool] = False", "feedback weights decay as the forward weights do", "field_rules"),
        ("mirror-decay", "methods/weight_mirror.py", "1 - self.decay", "1 + self.decay",
         "mirrored weights decay", "field_rules plain_rules"),
        ("dtp-target-sign", "methods/dtp.py", "h - self.eta * above", "h + self.eta * above",
         "targets lie down the loss", "field_rules plain_rules"),
        ("dtp-skip", "methods/dtp.py", "above + through if", "through if",
         "an inverse has the skip of its block", "field_rules plain_rules"),
        ("dtp-inverse-rate", "methods/dtp.py", "return self.inverse_rate", "return 1.0",
         "inverses learn at a rate of their own", "engine"),
        ("drl-whole-path", "methods/dtp_drl.py", "- noise).square().mean()", "- 2 * noise).square().mean()",
         "the feedback path is the pseudo-inverse of the path up", "field_rules plain_rules"),
        ("drl-damping", "methods/dtp_drl.py", "self.damping / 2", "self.damping",
         "damping is a decay of the inverses", "field_rules plain_rules"),
        ("predictive-error-sign", "methods/predictive_coding.py", "tuple(p - h", "tuple(h - p",
         "an error has the sign of a gradient of the loss", "field_rules plain_rules"),
        ("dual-nudge-sign", "methods/dual_propagation.py", "h - minus, above", "h + minus, above",
         "the two states of a pair are nudged opposite ways", "plain_rules"),
        ("dual-mean-state", "methods/dual_propagation.py", "self.alpha * up + (1 - self.alpha) * down", "up",
         "weights learn at both states of a pair", "plain_rules"),
        ("sim-mean", "methods/local_losses.py", ".square().mean(dim=1)", ".square().sum(dim=1)",
         "similarity losses are means over the batch", "field_rules plain_rules"),
        ("layerwise-embedding", "methods/layerwise.py", "range(stage + 1 if stage else 0,", "range(stage + 1,",
         "the embedding learns in the first stage", "field_rules plain_rules"),
        ("transport-forward-weight", "methods/transport.py", "function(x, self.feedback[weight],",
         "function(x, weight,", "credit travels through the feedback weights", "methods"),
        ("transport-changes-forward", "methods/transport.py", "value + (back - back.detach())", "back",
         "feedback does not change what a block computes", "methods"),
        ("transport-within", "training/learner.py", "self.method.passing(self.network, self.state)",
         "torch.enable_grad()", "weights within a block learn through the partners above them", "methods"),
        ("ep-nudge-sign", "methods/ep.py", "+ beta * loss", "- beta * loss",
         "the nudge lowers the loss", "plain_rules"),
        ("ep-energy-half", "methods/ep.py", "strict=True)) / 2", "strict=True))",
         "the energy is half the sum of squares", "plain_rules"),
        ("ep-credit-sign", "methods/ep.py", "(h - other) / beta", "(other - h) / beta",
         "EP's audited credit is a gradient", "plain_rules"),
        ("ep-batch-mean", "methods/ep.py", "(phases * len(labels))", "phases",
         "EP's objective is a mean over the batch", "plain_rules"),
        ("state-bridge-target", "methods/state_bridge.py", "target = last / rms(last).clamp_min(SMALLEST_RMS)",
         "target = last", "the state bridge fits h_L at unit rms", "bridges plain_rules"),
        ("state-bridge-labels", "methods/state_bridge.py", "labels.repeat(len(h))", "labels.repeat_interleave(len(h))",
         "every sample is predicted with its own label", "bridges plain_rules"),
        ("credit-bridge-mean", "methods/credit_bridge.py", " - math.log(len(values))", "",
         "the soft minimum is a log of a mean", "bridges plain_rules"),
        ("credit-bridge-average", "methods/credit_bridge.py", "lerp_(present, 1 - self.memory)",
         "lerp_(present, self.memory)", "targets come from a slow average of the net", "bridges plain_rules"),
        ("credit-bridge-slope", "methods/credit_bridge.py", " + misses.square().mean()", "",
         "V learns the true gradient at the top", "bridges plain_rules"),
        ("credit-bridge-noise", "methods/credit_bridge.py", "self.sigma * rms(following) * noise",
         "self.sigma * noise", "noise is relative to the rms of the state", "bridges plain_rules"),
        ("credit-bridge-warm-up", "methods/credit_bridge.py", "progress >= self.warm_up", "progress > self.warm_up",
         "the warm-up is the first fifth of the epochs", "bridges plain_rules"),
        ("bridge-depth", "methods/bridge.py", "max(len(vectors) - 1, 1)", "len(vectors)", "t_l = l / L", "plain_rules"),
        # --- the engine
        ("normalise-floor", "experiments/spec.py", "] = 1e-6", "] = 1e-9",
         "r(a) = a / (rms(a) + 1e-6)", "architectures"),
        ("normalise-mean", "core/vectors.py", "credit.square().mean(dim=-1, keepdim=True)",
         "credit.square().sum(dim=-1, keepdim=True)", "r(a) divides by the root mean square", "architectures"),
        ("teaching-positions", "training/learner.py", "credit.numel() / output.numel() / len(credit)",
         "1 / len(credit)", "the teaching signal is a mean over tokens and positions", "architectures"),
        ("penalty-weight", "training/learner.py", "learner.spec.penalty * residual_energy(residuals)",
         "residual_energy(residuals)", "the penalty is weighted by lambda", "architectures"),
        ("penalty-features", "training/learner.py", "f.square().sum(1 if f.dim() == 4 else -1).mean()",
         "f.square().mean()", "the penalty sums over features", "architectures"),
        ("frozen-learns", "training/learner.py", "_blocks].requires_grad_(False)", "_blocks].requires_grad_(True)",
         "frozen blocks keep every bit", "engine batch_norm"),
        ("frozen-statistics", "training/learner.py", "            block.eval()", "            block.train()",
         "frozen blocks normalise by their initial statistics", "batch_norm"),
        ("bridge-decay", "training/learner.py", "if self.method.decays_state else 0.0",
         "if True else 0.0", "weight decay spares auxiliary nets", "engine"),
        ("statistics-twice", "networks/trace.py", "module.track_running_stats = False",
         "module.track_running_stats = True", "BatchNorm sees every minibatch once", "batch_norm"),
        ("schedule", "training/loop.py", "math.cos(math.pi * epoch / spec.epochs)",
         "math.cos(math.pi * (epoch + 1) / spec.epochs)", "the learning rate follows a cosine from lr", "engine"),
        ("random-targets", "training/loop.py", "yield x, targets", "yield x, _",
         "random targets leave nothing to learn", "engine"),
        ("epochs-alike", "training/loop.py", 'generator(spec.seed, "epoch", epoch)',
         'generator(spec.seed, "epoch")',
         "every epoch is shuffled anew", "engine"),
        ("history-layer", "training/loop.py", "truth.gradients[1:]), None]",
         "truth.gradients), None]",
         "the cosine compares with the gradient at the block's output", "engine"),
        ("monitor-any", "training/monitor.py", "return all(fired", "return any(fired",
         "a training ends when all checks of its monitor fire", "monitor"),
        ("unnormalised-scale", "training/learner.py", "a * len(a) for a in targets", "a for a in targets",
         "credits as they are are gradients of the per-sample loss", "architectures"),
        ("clip-early", "training/optimiser.py", "for parameters, norm in self.clips:", "for parameters, norm in ():",
         "the gradients together are no longer than clip", "engine"),
        ("clip-groups", "training/learner.py", "(network.embed, *network.blocks)]", "(network.embed,)]",
         "every group is clipped by itself", "engine"),
        ("frozen-embedding", "training/learner.py", "embed.train(not self.spec.frozen_embedding)", "embed.train()",
         "a frozen embedding keeps its running statistics", "architectures"),
        ("held-out", "training/loop.py", "dataset, validation = held_out(", "_, validation = held_out(",
         "held-out samples are never trained on", "engine"),
        ("resume-optimiser", "training/resume.py", "optimiser.moments.setdefault(int(index), {})[moment] = tensor",
         "pass",
         "a resumed training has the optimiser's moments", "checkpoint"),
        # --- data
        ("crop-range", "data/dataset.py", "2 * dataset.padding + 1", "2 * dataset.padding",
         "crops begin at 0..2p", "data"),
        ("crop-axes", "data/dataset.py", "windows[index, :, rows, columns]", "windows[index, :, columns, rows]",
         "rows and columns of a crop are its own", "data"),
        ("flip-axis", "data/dataset.py", "cropped.flip(-1)", "cropped.flip(-2)",
         "images are mirrored left to right", "data"),
        ("flip-always", "data/dataset.py", "0.5 if dataset.flip else 0.0", "1.0 if dataset.flip else 0.0",
         "half of the images are mirrored", "data"),
        ("normalise-shift", "data/dataset.py", ".sub_(mean", ".add_(mean", "(pixel / scale - mean) / std", "data"),
        ("last-batch", "data/dataset.py", "order = torch.randperm(count, generator=generator)",
         "order = torch.randperm(count, generator=generator)[: count - count % batch_size]",
         "the last, smaller batch is trained on", "data"),
        # --- metrics and diagnostics
        ("unit-scale", "core/vectors.py", "largest = rows.abs().amax(dim=-1, keepdim=True)",
         "largest = rows.abs().amax(dim=-1, keepdim=True).clamp_min(1e-8)",
         "a cosine has no epsilon", "metrics"),
        ("median-norm", "core/vectors.py", "sample_norms(rows).median()", "sample_norms(rows).mean()",
         "norms are medians over samples", "metrics protocol"),
        ("clamped-floor", "audit/statistics.py", "b.float(), dim=-1)", "b.float(), dim=-1, eps=0)",
         "the clamped cosine clamps norms at 1e-8", "metrics"),
        ("pairwise-diagonal", "audit/statistics.py", "(count * (count - 1))).item()", "count**2).item()",
         "stability averages over pairs of different batches", "metrics protocol"),
        ("growth-last", "protocol/checks.py", "largest = max(growths)", "largest = growths[-1]",
         "the largest growth of any block decides", "protocol"),
        ("growth-limit", "protocol/evidence.py", "ratio: float = 50.0", "ratio: float = 30.0",
         "D1 fires above 50", "protocol documents"),
        ("floor-limit", "protocol/evidence.py", "g_norm_floor: float = 1e-7", "g_norm_floor: float = 1e-8",
         "D2 fires below 1e-7", "protocol documents"),
        ("depth-side", "protocol/checks.py", 'side="below",\n        unit="points",\n        column="margin",',
         'side="above",\n        unit="points",\n        column="margin",', "D3 fires below its margin", "protocol"),
        ("strict-limit", "protocol/checks.py", "return value > limit", "return value >= limit",
         "a value at its limit does not fire", "protocol"),
        ("margin-rounding", "protocol/evidence.py", "return round(accuracy - frozen, 9)", "return accuracy - frozen",
         "a margin of exactly two points does not fire", "protocol"),
        ("stability-layer", "audit/diagnostics.py", "(network.depth + 1) // 2", "network.depth // 2",
         "stability is taken in the middle", "protocol"),
        ("saturation-side", "protocol/checks.py", "product < thresholds.loss",
         "product > thresholds.loss", "saturated and collapsed references are told apart", "protocol"),
        ("no-float64", "networks/trace.py", "copy.deepcopy(module, kept).double()", "copy.deepcopy(module)",
         "gradients are recomputed in float64", "protocol"),
        ("spatial-gradient", "networks/network.py", "return g.sum(dim=(2, 3))", "return g.mean(dim=(2, 3))",
         "the gradient by a spatial mean is a sum over positions", "architectures contract"),
        ("contract-token-mean", "networks/description.py", "self._vector(g, torch.sum)",
         "self._vector(g, torch.mean)", "the gradient by a token mean is a sum over tokens", "contract"),
        ("bypassed-state", "networks/description.py", "if share is not None and share > WHOLE and not",
         "if False and not", "a state that something goes past is refused", "states"),
        # --- verdicts
        ("three-check-or", "protocol/judge.py", "or len(fired) > 1:", "or fired:",
         "D1 or D2 alone is a flag, not a failure", "protocol"),
        ("unknown-passes", "protocol/judge.py", "return None if None in", "return False if None in",
         "an unevaluated check never counts as a pass", "protocol"),
        ("four-check-stability", "protocol/checks.py", 'label="C",\n        four=True,', 'label="C",',
         "the four-check verdict has four checks", "protocol"),
        ("non-finite-passes", "protocol/judge.py", "if not finite or len(", "if len(",
         "NaN and infinities fail", "protocol contract"),
        ("strict-baseline", "protocol/checks.py", "found.own, found.own_name", "found.bp, found.own_name",
         "D3 compares with the method's own frozen baseline", "protocol audit"),
        # --- credit metrics and the audit of a run
        ("rho-sign", "audit/credit_metrics.py", "after(length * some)", "after(-length * some)",
         "rho of the true gradient is 1", "credit_metrics"),
        ("nudge-sign", "audit/credit_metrics.py", "normalised(credit)[None], -eta,", "normalised(credit)[None], eta,",
         "a good credit's nudge lowers the loss", "credit_metrics"),
        ("null-trained", "audit/run_credits.py", "replace(twin, state=state.double().to(x.device))", "twin",
         "the null draws fresh feedback", "credit_metrics"),
        ("null-spread", "audit/credit_metrics.py", "known.std().item()", "known.std(correction=0).item()",
         "the spread of draws has ddof 1", "credit_metrics"),
        ("deep-first", "audit/credit_metrics.py", "for block in blocks[1:]]", "for block in blocks]",
         "the first block is not deep", "credit_metrics"),
        ("drift-relative", "audit/run_credits.py", ".item() / start, n, n_valid)", ".item(), n, n_valid)",
         "drift is relative to the initialisation", "credit_metrics"),
        ("cosine-output", "audit/credit_metrics.py", "measure(credit, layer + 1)", "measure(credit, layer)",
         "the exact gradient at the block's output has cosine 1", "credit_metrics audit"),
        ("stopped-baselines", "audit/run_audit.py", "own_acc = bp_frozen_acc = None", "pass",
         "a stopped run is not compared with longer baselines", "monitor"),
        # --- intervals and seeds
        ("floor-scaled", "protocol/evidence.py", "reference * (FLOOR_SAMPLES / samples)", "reference",
         "the gradient floor belongs to a batch size", "reference_contract"),
        ("jackknife-scale", "audit/statistics.py", "math.sqrt((count - 1) / count * (", "math.sqrt(1 / count * (",
         "the stability's interval is the jackknife's", "borderline"),
        ("mean-of-seeds", "protocol/judge.py", "fires = self.distance < 0", "fires = False",
         "the mean over the seeds decides", "judge"),
        ("few-batches", "protocol/checks.py", "measured.n_valid in range(FEWEST)", "measured.n_valid in range(2)",
         "fewer than 8 batches are not evaluated", "protocol borderline"),
        ("given-sign", "audit/given_credits.py", "return (credit if credit.shape", "return -(credit if credit.shape",
         "credits from elsewhere are measured as they are", "foreign_models"),
        # --- specifications
        ("digest-seed", "experiments/spec.py", "digest_of(self.to_dict())",
         'digest_of(self.to_dict() | {"seed": 0})', "different runs have different digests", "spec"),
        ("own-baseline", "experiments/spec.py", "replace(bp, method=self.method)",
         "bp", "a run is compared with its own method's frozen network", "grid"),
        # --- results
        ("sample-deviation", "results/statistics.py", "stdev(given) if", "stdev(given) * 0.9 if",
         "deviations have divisor n - 1", "statistics"),
        ("scorecard-tolerance", "results/judging.py", "allowed = entry.tolerance", "allowed = 1.1 * entry.tolerance",
         "without seeds on both sides a mean agrees within the tolerance", "scorecard"),
        ("scorecard-pooled", "results/judging.py", "freedom = own.n + entry.n - 2", "freedom = own.n + entry.n",
         "means over seeds agree within two pooled deviations", "scorecard"),
        ("scorecard-order", "results/judging.py", "_at_most(one, other) for one, other in pairwise(means.values())",
         "False for one, other in pairwise(means.values())", "means fall in the published order", "scorecard"),
    )
}  # fmt: skip


def problems() -> list[str]:
    """Return why mutations no longer apply: their text does not stand exactly once, or a test file
    is gone.
    """
    found = []
    for name, mutation in MUTATIONS.items():
        path = ROOT / mutation.path
        times = path.read_text(encoding="utf-8").count(mutation.old) if path.exists() else 0
        if times != 1:
            found.append(
                f"{name}: {mutation.path} has {mutation.old!r} {times} times; expected once."
            )
        found += [
            f"{name}: no {test}." for test in mutation.test_files() if not (ROOT / test).exists()
        ]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", default=[*MUTATIONS], metavar="NAME", help="mutations; default all"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="mutations at a time (default 1)"
    )
    options = parser.parse_args()
    lines = problems()
    if lines:
        print("\n".join(lines))
        return 1
    unknown = set(options.names) - set(MUTATIONS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if _status({test for name in options.names for test in MUTATIONS[name].test_files()}):
        print("the tests fail without any mutation: mend them first")
        return 2
    with ThreadPoolExecutor(options.jobs) as pool:
        caught = dict(zip(options.names, pool.map(_caught, options.names)))
    missed = [name for name in caught if not caught[name]]
    print(f"{len(missed)} of {len(caught)} missed: {', '.join(missed)}")
    return 1 if missed else 0


def _caught(name: str) -> bool:
    mutation = MUTATIONS[name]
    status = _status(mutation.test_files(), mutation)
    outcome = {0: "MISSED", FAILED: "caught"}.get(status, f"NOT RUN (pytest's status {status})")
    print(f"{outcome}  {name}: {mutation.breaks}", flush=True)
    return status == FAILED


def _status(tests: Iterable[str], mutation: Mutation | None = None) -> int:
    """Run test files in a copy of the project, broken or not, until one fails; returns pytest's
    exit status.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(ROOT, Path(folder) / "project", symlinks=True, ignore=_not_copied)
        if mutation:
            mutation.apply(copy)
        options = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        command = [sys.executable, *options, "-m", CHEAP, *sorted(tests)]
        environment = os.environ | {"PYTHONPATH": str(copy / "src")}
        return subprocess.run(command, cwd=copy, env=environment, capture_output=True).returncode


def _not_copied(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if {name, Path(folder, name)} & NOT_COPIED]


if __name__ == "__main__":
    sys.exit(main())
