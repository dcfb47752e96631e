"""The checks of the conformance suite: each raises an exception if a method breaks a promise.

If a check fails, the user reads the finding and the first paragraph of the check's docstring.
"""

from __future__ import annotations

import gc
import inspect
import math
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import asdict, dataclass, fields, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from fa_audit.core.randomness import generator, seeded, stream_seed
from fa_audit.core.vectors import cosine
from fa_audit.methods.bp import BP
from fa_audit.methods.info import MethodInfo, of_class
from fa_audit.methods.method import Credits, Method
from fa_audit.methods.transport import partnered_weights
from fa_audit.networks import ARCHITECTURES
from fa_audit.networks.network import Network
from fa_audit.networks.trace import Trace, accuracy_of, keeping_statistics, untouched
from fa_audit.testing.findings import (
    Finding,
    differing,
    expect,
    expect_each,
    expect_none,
    in_one_line,
)
from fa_audit.testing.probes import (
    cosines,
    credits_of,
    facts_of,
    gradients_by_part,
    gradients_of,
    named_credits,
    saturate,
    step,
)
from fa_audit.testing.subject import CLASSES, DEPTH, HELD_OUT, SEED, Batch, Subject, clouds
from fa_audit.training.checkpoint import (
    learner_tensors,
    load_checkpoint,
    load_learner_tensors,
    save_checkpoint,
)
from fa_audit.training.learner import Learner, build, credits_problem
from fa_audit.training.resume import Resume

# Options of a training that is long enough for auxiliary networks to learn the credits' direction,
# and too short for output errors to vanish.
_GENTLE = {"epochs": 10, "lr": 3e-3}
# Gradients that differ only in the order of sums have a smaller relative error than this.
_ROUNDING = 1e-3
# If a sample changes, its credit must change by more than this fraction of the longest credit.
_SAME_ROW = 1e-4
# If a sample moves to another row of the batch, its credit may change by this fraction, since the
# steps of a relaxation accumulate rounding errors.
_SAME_PLACE = 1e-2
# If a batch is doubled, its gradients may change by this fraction.
_SAME_MEAN = 2e-2


# --- the same bits --------------------------------------------------------------------------------


def process(subject: Subject) -> None:
    """Expect the same bits from a training in another process with another PYTHONHASHSEED. To
    pass, derive nothing from hash(), id(), the process, the clock, or Python's or numpy's random
    numbers, and never call sys.exit or os._exit.
    """
    try:
        given = pickle.dumps(replace(subject, runs={}))
    except (pickle.PicklingError, AttributeError, TypeError):
        # A class inside a function cannot be sent to another process.
        return
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tensors"
        code = (
            f"import sys; sys.path[:] = {sys.path}; from {__name__} import train_here;"
            f"train_here({str(path)!r})"
        )
        hashes = os.environ | {"PYTHONHASHSEED": str(os.getpid())}
        command = [sys.executable, "-c", code]
        ended = subprocess.run(command, env=hashes, input=given, capture_output=True)
        # If training raises an exception, another check reports it.
        if b"Traceback" in ended.stderr:
            return
        expect(path.exists(), f"a training that ends its process, with status {ended.returncode}")
        changed = differing(subject.tensors(), torch.load(path))
    expect_none(changed, "different {} in another process")


def train_here(path: str) -> None:
    """Read a `Subject` from standard input, train it, and save its tensors to `path`; the check
    `process` calls this in another process.
    """
    subject = pickle.load(sys.stdin.buffer)
    torch.set_num_threads(1)
    with seeded(stream_seed(SEED, "checks")):
        torch.save(subject.tensors(), path)


def determinism(subject: Subject) -> None:
    """Expect the same bits from a training under another global random stream and with another test
    set. To pass, draw numbers only in init_state, from its generator, and in auxiliary_loss and
    update_state, from `randomness`; learn only from the training's minibatches.
    """
    with seeded(2):
        again = learner_tensors(subject.retrained())
    expect_none(differing(subject.tensors(), again), "different {} after a second training")
    data = clouds()
    fewer = replace(data, test_images=data.test_images[1:], test_labels=data.test_labels[1:])
    changed = differing(again, learner_tensors(subject.retrained(fewer)))
    expect_none(changed, "different {} after a training with another test set")


def saved(subject: Subject) -> None:
    """Expect the same bits in the credits of a copied or reloaded learner, and in a training that
    is interrupted and resumed. To pass, the state must hold, in parameters and persistent buffers,
    all values that change during training or that credits depend on; the method's constants must be
    plain scalars.
    """
    original, batch = subject.trained(), subject.batch(8)
    expected = named_credits(original, *batch)
    # Under another seed, anything that a method keeps outside the state differs.
    copied = subject.build(seed=SEED + 1)
    load_learner_tensors(copied, learner_tensors(original))
    changed = differing(expected, named_credits(copied, *batch))
    expect_none(changed, "credits of {} that differ in a copy of the learner")
    with TemporaryDirectory() as folder:
        path, resume = Path(folder) / "checkpoint", Resume(Path(folder) / "resume", "same")
        save_checkpoint(original, path)
        loaded = load_checkpoint(path, method=replace(subject.method))
        changed = differing(expected, named_credits(loaded, *batch))
        expect_none(changed, "different credits of {} in a reloaded learner")
        subject.retrained(resume=resume, snapshot=1)
        resumed = learner_tensors(subject.retrained(resume=resume))
        changed = differing(learner_tensors(original), resumed)
        expect_none(changed, "different {} after an interruption")


# --- credits --------------------------------------------------------------------------------------


def apart(subject: Subject) -> None:
    """Expect that `init_state` leaves the network unchanged and shares no tensor with it. To pass,
    only read the network there, and keep copies in the state; instead of freezing a part, give it
    credits of zeros.
    """
    learner, plain = subject.build(), replace(subject, method=BP()).build()
    changed = differing(facts_of(plain.network), facts_of(learner.network))
    expect_none(changed, "init_state changing {}")
    tensors = learner.network.state_dict().values()
    memory = {tensor.untyped_storage().data_ptr() for tensor in tensors}
    found = "{} of the state sharing memory with the network"
    state = learner.state.state_dict()
    expect_each(state, lambda t: t.untyped_storage().data_ptr() not in memory, found)


def shapes(subject: Subject) -> None:
    """Expect one float32 credit ``(B, d)`` per block and one for the embedding, at any depth and
    batch size, with and without skips; with the trait `own_objective` also an objective. To pass,
    return Credits(blocks, embedding), made with network.read and network.read_gradient.
    """
    for changes in (
        {},
        {"residual": False},
        {"terminal_norm": False},
        {"depth": 1},
        {"shallow": True},
    ):
        learner = subject.build(**changes)
        for count in (5, 1):
            credits = credits_of(learner, *subject.batch(count))
            problem = credits_problem(learner.network, credits, count, torch.float32)
            expect(not problem, f"{problem} on a batch of {count} with {changes or 'no options'}")
            lost = subject.method.own_objective and credits.objective is None
            expect(not lost, "the trait own_objective, but no objective")


def graphs(subject: Subject) -> None:
    """Expect that credits are detached, that objectives and auxiliary losses are scalars with a
    graph, and that the network gets no gradients. To pass, return losses without calling backward.
    """
    learner, (x, labels), randomness = subject.copy(), subject.batch(5), generator(SEED, "method")
    method, network, run = learner.method, learner.network, learner.trace(x)
    credits = method.credits(network, run, labels, learner.state)
    found = "a graph behind the credits of {}"
    expect_each(credits.by_name(), lambda a: not a.requires_grad, found)
    auxiliary = method.auxiliary_loss(network, run, labels, learner.state, randomness)
    for loss in (credits.objective, auxiliary):
        if loss is not None:
            found = f"a loss of shape {tuple(loss.shape)} that is no scalar or has no graph"
            expect(loss.dim() == 0 and loss.requires_grad, found)
    expect_none(gradients_of(network), "a gradient on {}")


def calls(subject: Subject) -> None:
    """Expect that credits depend neither on earlier calls nor on the global random stream, and that
    later calls do not overwrite them. To pass, return new tensors and reuse no buffer; keep no
    batch, counter or generator between calls.
    """
    (x, labels), one, other = subject.batch(16), subject.build(), subject.build()
    first = named_credits(one, x[:8], labels[:8])
    kept = deepcopy(first)
    for learner in (one, other):
        credits_of(learner, x[8:], labels[8:])
    with seeded(2):
        later = named_credits(other, x[:8], labels[:8])
    expect_none(differing(kept, first), "credits of {} overwritten by the next call")
    expect_none(differing(kept, later), "credits of {} that depend on earlier calls or draws")


def purity(subject: Subject) -> None:
    """Expect that `credits` changes no tensor, attribute, hook, gradient, mode, input or global
    random state. To pass, move changes to update_state, or copy first.
    """
    # Test the untrained learner first: training may crash if `credits` changes torch's settings.
    for make in (subject.build, subject.copy):
        learner = make()
        learner.network.blocks[:1].requires_grad_(False)
        learner.train_mode()
        for parameter in learner.parts.parameters():
            parameter.grad = torch.full_like(parameter, 0.5) if parameter.requires_grad else None
        # Make a random state that no seed gives, so that a call of random.seed is noticed.
        random.random()
        x, labels = subject.batch(8)
        run = learner.trace(x)
        before = _surroundings(learner, run, labels)
        # The training engine protects running statistics in the same way.
        with keeping_statistics(learner.network):
            learner.method.credits(learner.network, run, labels, learner.state)
        changed = differing(before, _surroundings(learner, run, labels))
        expect_none(changed, "credits changing {}")


def _surroundings(learner: Learner, run: Trace, labels: Tensor) -> dict[str, Any]:
    """Copy everything that `credits` can reach and must not change, by name."""
    facts = facts_of(learner.parts) | {
        "labels": labels.clone(),
        "the global random state": torch.get_rng_state(),
        "Python's random state": random.getstate(),
        "torch's default type or threads": (torch.get_default_dtype(), torch.get_num_threads()),
        "torch's gradient mode": torch.is_grad_enabled(),
    }
    for name, given in vars(run).items():
        facts[f"trace.{name}"] = torch.cat([t.detach().flatten() for t in tree_leaves(given)])
    return facts


def finite(subject: Subject) -> None:
    """Expect finite credits and gradients before and after training, also for errors of exactly 0
    or 1 and for states of zeros. To pass, guard divisions and logarithms.
    """
    batch = subject.batch(20)
    for make in (subject.build, subject.copy):
        saturated, silent = make(), make()
        saturate(saturated, 0)
        for parameter in silent.network.embed.parameters():
            parameter.data.zero_()
        cases = {"": make(), " with saturated logits": saturated, " with states of zeros": silent}
        for where, learner in cases.items():
            tensors = named_credits(learner, *batch) | step(learner, *batch)
            _expect_finite(tensors | learner_tensors(learner), where)


def _expect_finite(tensors: dict[str, Tensor], where: str) -> None:
    expect_each(tensors, lambda tensor: tensor.isfinite().all(), f"NaN or Inf in {{}}{where}")


def fresh(subject: Subject) -> None:
    """Expect that, if feedback is random, every credit but the topmost depends on the generator of
    `init_state`. Feedback counts as random if any credit depends on that generator, or if the
    method has the trait random_feedback. To pass, draw the feedback of every layer from the
    generator. If no feedback is random, drop the trait.
    """
    found = []
    for seed in (1, 2):
        learner = subject.build()
        state = learner.method.init_state(learner.network, generator(seed, "feedback"))
        learner.method.begin_epoch(state, 0.0)
        found.append(named_credits(replace(learner, state=state), *subject.batch(8)))
    changed = differing(*found)
    if changed or subject.method.random_feedback:
        names = [name for name, a in found[0].items() if a.any()]
        fixed = [name for name in names[:-1] if name not in changed]
        expect_none(fixed, "the same credit of {} with other feedback")


def labels(subject: Subject) -> None:
    """Expect that every nonzero credit depends on the sample's label, even if the output error and
    the topmost credit are zero. To pass, compute credits from the argument `labels`. A credit from
    a target or prediction should vanish with the output error: subtract the credit that a zero
    error gives.
    """
    learner, (x, own) = subject.copy(), subject.batch(6)
    # A shift keeps the similarities of labels, and so all credits made from similarities. Labels
    # that are all 0 have other similarities.
    others = ((own + 1) % CLASSES, (own + 2) % CLASSES, torch.zeros_like(own))
    versions = [named_credits(learner, x, given) for given in others]
    _expect_heard(versions, "ignores the labels")
    certain = []
    for label in (0, 1):
        saturate(learner, label)
        certain.append(named_credits(learner, x, torch.full_like(own, label)))
    if not any([*credits.values()][-1].any() for credits in certain):
        _expect_heard(certain, "ignores labels, and is nonzero while the topmost credit is zero")


def _expect_heard(versions: list[dict[str, Tensor]], found: str) -> None:
    """Expect that every nonzero row of a credit depends on the labels, which differ by version."""
    for name in versions[0]:
        a = torch.stack([version[name] for version in versions])
        same = (a == a[0]).all(0).all(1)
        expect(not (same & a[0].any(1)).any(), f"a credit of {name} that {found}")


def rows(subject: Subject) -> None:
    """Expect that another image and label in row i change row i of every credit and no other row,
    and that a sample has the same credit in any row. To pass, compute every sample's credit from
    its own row, or declare across_samples.
    """
    learner, (x, labels) = subject.copy(), subject.batch(13)
    # Wrong labels give errors of order one.
    labels = (labels + 1) % CLASSES
    before = named_credits(learner, x[:6], labels[:6])
    for row in range(6):
        index = torch.arange(6)
        # Labels cycle through 6 classes: the sample 7 rows further on is of the next class.
        index[row] += 7
        compared = [row] if subject.method.across_samples else range(6)
        for name, after in named_credits(learner, x[index], labels[index]).items():
            both = torch.stack([before[name], after])
            moved = (both[1] - both[0]).norm(dim=1) > _SAME_ROW * both.norm(dim=2).max()
            changed = [other for other in compared if moved[other]]
            # A credit that is zero before and after need not change.
            expected = [row] if both[:, row].any() else []
            found = f"rows {changed} of the credit of {name} changing with sample {row}"
            expect(changed == expected, found)
    turned = named_credits(learner, x[:6].flip(0), labels[:6].flip(0))
    longest = max(a.norm() for a in before.values())
    for name, a in before.items():
        # A credit much shorter than the others may consist of rounding errors, and these depend on
        # the sample's place in the batch.
        scale = max(a.norm(), _SAME_PLACE * longest)
        found = f"a credit of {name} that changes with its sample's row in the batch"
        expect(not (turned[name].flip(0) - a).norm() > _SAME_PLACE * scale, found)


# By chance, a topmost credit may have a cosine of this size with the gradient.
_BY_CHANCE = 0.1
# A cosine that no credit has by chance.
_AGAINST = -0.5


def direction(subject: Subject) -> None:
    """Expect that with the head's weight as direct feedback the topmost credit has a positive
    cosine with ``g_L``, and no other credit has a clearly negative cosine with its gradient.
    Credits are gradients of the loss, which training descends: check the sign. If the cosine is
    near 0, look for a transposed weight, or a credit of another layer or sample.

    Random feedback has no sign, since -B is as likely as B. After a short training the head's
    weight therefore replaces every direct feedback matrix in the state. The topmost credit is the
    last block's, or the embedding's in a network without blocks. A credit that is zero, or has one
    direction for all samples (a global scalar error), is not checked. With the trait
    `own_objective` (credits of another loss), and in architectures other than resmlp, which this
    check does not train, only the topmost credit is checked: its cosine must not be clearly
    negative.
    """
    own, mlp = subject.method.own_objective, subject.architecture == "resmlp"
    least, learners = _AGAINST, [subject.build()]
    if mlp:
        least = -_BY_CHANCE if own else _BY_CHANCE
        learners = [subject.copy(**_GENTLE, shallow=shallow) for shallow in (False, True)]
    for learner in learners:
        *below, top = cosines(learner, *subject.batch(HELD_OUT))
        # A credit whose cosine is NaN passes, since comparisons with NaN are false.
        expect(not top <= least, f"a mean cosine of {top:.3f} between the topmost credit and g_L")
        against = [layer for layer, value in enumerate(below) if value < _AGAINST]
        expect(own or not mlp or not against, f"credits against g_l for l in {against}")


# The objective must be lower by 5 % for right labels than for wrong ones.
_TELLING = 0.95


def downhill(subject: Subject) -> None:
    """Expect that a small step of the last block, or of the embedding in a network without blocks,
    lowers the batch's loss. With the trait own_objective, expect instead a lower objective for
    right labels than for wrong ones. To pass, check signs, since training descends credits and
    objectives. Let an objective contrast right labels with wrong ones.

    Unlike `direction`, this check sees the sign of an objective.
    """
    if subject.method.own_objective:
        return _tell_labels(subject)
    for shallow in (False, True):
        learner, (x, labels) = subject.copy(**_GENTLE, shallow=shallow), subject.batch(HELD_OUT)
        # As in `direction`, `cosines` replaces direct feedback by the head's weight.
        if math.isnan(cosines(learner, x, labels)[-1]):
            continue
        network = learner.network
        F.cross_entropy(network(x), labels).backward()
        # The parts are embedding, blocks and head; [-2] is the last block, or the embedding.
        slope = gradients_by_part(network)[-2]
        learner.parts.zero_grad()
        step(learner, x, labels)
        change = -slope @ gradients_by_part(network)[-2]
        part = "embedding" if shallow else "last block"
        expect(change < 0, f"a loss slope of {change:.3g}, not < 0, along the step of the {part}")


def _tell_labels(subject: Subject) -> None:
    """Expect a lower objective on held-out samples with right labels than with wrong ones."""
    learner, (x, labels) = subject.copy(**_GENTLE), subject.batch(HELD_OUT)
    right = credits_of(learner, x, labels).objective
    wrong = []
    for stride in range(1, CLASSES - 1):
        # Shift by 1 to CLASSES - 1, so that wrong labels of all classes occur.
        shift = 1 + torch.arange(len(labels)) * stride % (CLASSES - 1)
        wrong.append(credits_of(learner, x, (labels + shift) % CLASSES).objective)
    least = min(wrong)
    found = f"an objective of {right:.4g} for right labels and {least:.4g} for wrong ones"
    expect(right < least - (1 - _TELLING) * abs(least), found)


class _Types(TorchFunctionMode):
    """Collect the types of all tensors that torch returns."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[torch.dtype] = set()

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        self.found |= {one.dtype for one in tree_leaves(result) if isinstance(one, Tensor)}
        return result


_NARROW = (torch.float16, torch.bfloat16)
# Credits with at most this many different values, such as signs, may be exact in half precision.
_MANY = 100


def precision(subject: Subject) -> None:
    """Expect no half precision in a step, and that a float64 network has float64 credits that agree
    with its credits in float32. To pass, compute in the type of the states, without half precision
    or autocast.
    """
    learner, (x, labels) = subject.build(), subject.batch(16)
    with _Types() as types:
        single = named_credits(learner, x, labels)
        step(subject.build(), x, labels)
    narrow = types.found.intersection(_NARROW)
    expect_none(map(str, narrow), "{} in the computation of a step")
    learner.parts.double()
    for name, a in named_credits(learner, x.double(), labels).items():
        expect(a.dtype == torch.float64, f"{a.dtype} credits of {name} in a float64 network")
        # A method may round in numpy, which torch cannot notice: test the values themselves.
        rounded = any(torch.equal(a.to(kind).to(a), a) for kind in _NARROW)
        found = f"credits of {name} rounded to half precision"
        expect(not rounded or len(a.unique()) <= _MANY, found)
        far = (single[name] - a).norm(dim=1) > _ROUNDING * a.norm(dim=1)
        found = f"float32 credits of {name} with a relative error above {_ROUNDING}"
        expect(far.double().mean() <= 0.5, found)


# --- steps ----------------------------------------------------------------------------------------


# The least cosine allowed between an objective's gradients and those that the credits imply.
_LEAST_COSINE = 0.5


@dataclass(frozen=True)
class _Reporting(Method):
    """Returns the credits `given` for any batch, and has the `passing` of the learner's method."""

    given: Credits
    learner: Learner

    def passing(self, network: Network, state: Any) -> AbstractContextManager[Any]:
        return self.learner.method.passing(network, self.learner.state)

    def credits(self, *_: Any) -> Credits:
        return self.given


def trains(subject: Subject) -> None:
    """Expect that every step of a short training uses the gradients that the credits imply. To
    pass, return the credits that train the network. With an objective, return its gradients as
    credits, or declare own_objective. Leave parameters and gradients of the network to the engine.

    The engine computes the implied gradients on a copy of the network, from the credits alone. The
    gradients of the step must equal the implied gradients up to rounding. If there is an objective,
    its gradients of embedding and blocks need only have a cosine of at least 0.5 with the implied
    gradients, or of at least 0 if the method has the trait `own_objective`.
    """
    learner = subject.build(lr=2e-3)
    for batch in _minibatches(subject, learner, 8):
        _check_step(learner, batch)


def _minibatches(subject: Subject, learner: Learner, count: int) -> Iterator[Batch]:
    """Yield one minibatch for each of `count` epochs. After each, the optimiser uses the gradients
    that the caller has left on the learner.
    """
    optimiser = learner.optimiser()
    x, labels = subject.batch(HELD_OUT)
    order = torch.randperm(HELD_OUT, generator=generator(SEED, "steps")).repeat(3)
    for epoch, rows in enumerate(order.split(16)[:count]):
        learner.method.begin_epoch(learner.state, epoch / count)
        optimiser.zero_grad()
        yield x[rows], labels[rows]
        optimiser.step()


def _check_step(learner: Learner, batch: Batch) -> None:
    """Compare the gradients of one minibatch, part by part, with those that its credits imply."""
    network = learner.network
    with untouched(network):
        # Steps run in training mode, where BatchNorm gives other states than in evaluation.
        network.train(any(True for _ in network.buffers()))
        given = credits_of(learner, *batch)
    reporting = _Reporting(replace(given, objective=None), learner)
    plain = build(learner.spec, learner.image_shape, network.classes, reporting).network
    plain.load_state_dict(network.state_dict())
    step(replace(learner, network=plain, method=reporting), *batch)
    learner.train_mode()
    step(learner, *batch)
    changed = differing(dict(plain.named_parameters()), dict(network.named_parameters()))
    expect_none(changed, "{} changed before the optimiser's step")
    parts = [*given.by_name(), "head"]
    pairs = zip(parts, gradients_by_part(network), gradients_by_part(plain), strict=True)
    for part, g, implied in pairs:
        if given.objective is None or part == "head":
            far = (g - implied).norm() > _ROUNDING * max(g.norm(), implied.norm())
            expect(not far, f"gradients of {part} that the credits do not imply")
            continue
        least = 0.0 if learner.method.own_objective else _LEAST_COSINE
        value = cosine(g[None], implied[None]).value
        found = f"a cosine of {value} between the objective's and the implied gradients of {part}"
        expect(value is None or value >= least, found)


def means(subject: Subject) -> None:
    """Expect that doubling a batch leaves its gradients unchanged. To pass, average objectives and
    auxiliary losses over the batch. Return credits that the engine normalises, or gradients of
    single samples' losses, or gradients of the batch-mean loss with batch_mean=True.
    """
    x, labels = subject.batch(8)
    gradients, credits = [], []
    for times in (1, 2):
        learner, batch = subject.build(), (torch.cat([x] * times), torch.cat([labels] * times))
        credits.append(credits_of(learner, *batch))
        gradients.append(step(learner, *batch))
    one, two = gradients
    for name, g in one.items():
        # An auxiliary loss draws other noise for a doubled batch, so its gradient need only be
        # nearer to g than to 2 g.
        noisy = name.startswith("state.")
        limit = (two[name] - 2 * g).norm() if noisy else _SAME_MEAN * g.norm()
        expect(
            not (two[name] - g).norm() > limit, f"the gradient of {name} differs in a doubled batch"
        )
    if subject.method.end_to_end or credits[0].objective is not None:
        return
    twice = credits[1].by_name()
    # If batch_mean is declared wrongly, doubling the batch multiplies credits by this factor.
    factor = 1.0 if credits[0].batch_mean else 0.5
    for name, a in credits[0].by_name().items():
        far = (twice[name][: len(a)] - factor * a).norm() > _ROUNDING * a.norm()
        declared = f"batch_mean={credits[0].batch_mean}"
        found = f"{declared}, but a doubled batch multiplies credits of {name} by {factor}"
        expect(far or not a.any(), f"{found}, not by {1.5 - factor}")


# 128 is the size of the audits' batch.
_LARGE_BATCH, _MANY_CLASSES = 128, 11
_LARGE = {"width": 150, "depth": 9}
# The least cosine allowed between the same samples' credits in a small and in a large batch.
_PARALLEL = 0.999


def sizes(subject: Subject) -> None:
    """Expect that `finite`, `trains` and `direction` pass for a wide and deep network with many
    classes and a large batch, and that a sample's credit has the same direction there as in a small
    batch. To pass, compute all d features of a credit for any d, by the same rule for every size.
    Compute every sample's credit from its own row, or declare across_samples.
    """
    learner, randomness = subject.build(_MANY_CLASSES, **_LARGE), generator(SEED, "sizes")
    x = torch.randn(_LARGE_BATCH, *learner.image_shape, generator=randomness)
    labels = torch.randint(_MANY_CLASSES, (_LARGE_BATCH,), generator=randomness)
    where = f" with {_LARGE}, {_MANY_CLASSES} classes and a batch of {_LARGE_BATCH}"
    large = named_credits(learner, x, labels)
    _expect_finite(large, where)
    # A method that fills only the first features fails. Sparse credits pass, since their zeros
    # differ by sample.
    found = f"only zeros in the second half of the credit of {{}}{where}"
    expect_each(large, lambda a: not a.any() or a[:, a.shape[1] // 2 :].any(), found)
    small = {} if subject.method.across_samples else named_credits(learner, x[:8], labels[:8])
    for name, a in small.items():
        value = cosine(a, large[name][:8]).value
        same = torch.equal(a, large[name][:8]) if value is None else value > _PARALLEL
        expect(same, f"another direction of the credit of {name} in a larger batch")
    _check_step(learner, (x, labels))
    top = cosines(learner, x, labels)[-1]
    usual = cosines(subject.build(), *subject.batch(16))[-1]
    found = f"a mean cosine of {top:.3f} between the topmost credit and g_L{where}"
    # Only methods whose credits align with g_L in an untrained network must pass.
    expect(not usual > _LEAST_COSINE or top > _LEAST_COSINE / 2, found)


def stages(subject: Subject) -> None:
    """Expect that blocks of a `greedy` method learn one after another, even under a penalty. To
    pass, give gradients to the stage's block only, or drop greedy.
    """
    if not subject.method.greedy:
        return
    learner, moved = subject.build(penalty=0.01, lr=2e-3), []
    blocks = learner.network.blocks.state_dict()
    before = deepcopy(blocks)
    for batch in _minibatches(subject, learner, 2 * DEPTH):
        # Record the blocks that the previous step moved.
        moved += [name[0] for name in differing(before, blocks)]
        before = deepcopy(blocks)
        step(learner, *batch)
    expect(moved == sorted(moved), f"blocks that learn in the order {moved}")


def memory(subject: Subject) -> None:
    """Expect that steps leave no graphs behind, and do not fill more and more memory. To pass, keep
    only detached values of a step, in buffers of fixed size.
    """
    learner, counts = subject.build(lr=2e-3), []
    # gc.get_objects skips frozen objects, so only tensors made from here on are found.
    gc.freeze()
    try:
        # Stop in a greedy method's first stage: the second adds moments to the optimiser.
        for batch in islice(_minibatches(subject, learner, 24), 6):
            step(learner, *batch)
            credits_of(learner, *batch)
            counts.append(sum(tensor.numel() for tensor in _new_tensors()))
        graphs = sum(tensor.grad_fn is not None for tensor in _new_tensors())
    finally:
        gc.unfreeze()
    expect(not graphs, f"{graphs} tensors with a graph kept after their step")
    # Count from the third step, since the first ones make the optimiser's moments.
    more = counts[5] - counts[2]
    expect(more <= 0, f"{more} more values in memory after three more steps")


def _new_tensors() -> Iterator[Tensor]:
    """Yield the reachable tensors made since ``gc.freeze``; a list would keep them alive."""
    gc.collect()
    return (value for value in gc.get_objects() if issubclass(type(value), Tensor))


# --- trainings ------------------------------------------------------------------------------------


# Chance is 1/6.
_WELL_ABOVE_CHANCE = 0.6


def learns(subject: Subject) -> None:
    """Expect that training on true targets gives a held-out accuracy far above chance, unless the
    topmost credit is zero or has one direction for all samples. Random targets must not give it.
    To pass, check scale and sign, and take targets from `labels` alone.
    """
    batch = subject.batch(HELD_OUT)
    unsigned = math.isnan(cosines(subject.copy(**_GENTLE), *batch)[-1])
    for changes in ({}, {"penalty": 0.01}, {"random_targets": True}):
        learner = subject.trained(epochs=6, terminal_norm=False, **changes)
        accuracy = accuracy_of(learner.network, [batch])
        above, may = accuracy >= _WELL_ABOVE_CHANCE, "random_targets" not in changes
        found = f"accuracy {accuracy:.2f} on separable classes with {changes or 'no options'}"
        expect(above == may or (may and unsigned), found)


def moves(subject: Subject) -> None:
    """Expect that training moves every parameter of network and state, except in the embedding and
    block 0 if their credit is zero. To pass, give every block a credit. Train the state's
    parameters by auxiliary_loss or an objective, or make them buffers. If feedback is declared
    as learned, let update_state turn it towards the weight that it stands for.
    """
    # Every layer gets some epochs, even if layers learn one after the other.
    learner, batch = subject.copy(epochs=2 * (DEPTH + 1)), subject.batch(8)
    moved = differing(learner_tensors(subject.build()), learner_tensors(learner))
    before = named_credits(learner, *batch)
    lowest = zip(("network.embed.", "network.blocks.0."), before.values())
    idle = tuple(part for part, a in lowest if not a.any())
    learning = [name for name, p in learner.parts.named_parameters() if p.requires_grad]
    still = [name for name in learning if name not in moved and not name.startswith(idle)]
    expect_none(still, "{} that training does not move")
    feedback = of_class(type(subject.method)).feedback
    if not feedback.startswith("learned"):
        return
    changed = any(name.startswith("state.") for name in moved)
    expect(changed, f"no change of the state by training, but {feedback=}")
    for name, tensor in learner.state.state_dict().items():
        kept = tensor.clone()
        tensor.zero_()
        # Skip tensors that no credit depends on, such as moments: they are no feedback.
        carries = differing(before, named_credits(learner, *batch))
        tensor.copy_(kept)
        if carries:
            _check_feedback(learner, name, kept)


# Two matrices of hundreds of entries do not have this cosine by chance.
_OPPOSITE = -0.25


def _check_feedback(learner: Learner, name: str, feedback: Tensor) -> None:
    """Check that learned feedback is not opposite to any weight, or transposed weight, of the same
    shape.
    """
    for weight, forward in partnered_weights(learner.network):
        for turned in (forward, forward.mT):
            if turned.shape == feedback.shape:
                value = F.cosine_similarity(feedback.flatten(), turned.flatten(), dim=0)
                found = f"a cosine of {value:.2f} between learned feedback {name} and {weight}"
                expect(value >= _OPPOSITE, found)


def options(subject: Subject) -> None:
    """Expect finite numbers under combinations of options, also in networks without blocks, and
    that frozen blocks keep every bit while everything else moves as usual.
    """
    plain = subject.build().network.state_dict()
    usual = differing(plain, subject.trained().network.state_dict())
    one, shallow = {"frozen_blocks": 1, "penalty": 0.01}, {"shallow": True}
    noise = {"random_targets": True}
    for changes in (one, one | noise, {"frozen_blocks": DEPTH}, shallow, shallow | noise):
        before, after = subject.build(**changes).network, subject.trained(**changes)
        _expect_finite(learner_tensors(after), f" with {changes}")
        moved = differing(before.state_dict(), after.network.state_dict())
        learning = [name for name, p in after.network.named_parameters() if p.requires_grad]
        still = [name for name in learning if name in usual and name not in moved]
        expect_none(still, f"{{}} that does not move with {changes}")


def architectures(subject: Subject) -> None:
    """Expect that `shapes`, `purity`, `rows`, `labels` and `direction` pass on every architecture
    for which the method does not raise NotImplementedError, and that credits that point along the
    gradient on resmlp do so on each. To pass, read gradients with network.read_gradient.

    `trains` must pass, too, if the method has neither an objective nor an end-to-end loss.
    """
    exact = _is_exact(subject)
    for name in ARCHITECTURES:
        if name == subject.architecture:
            continue
        other = replace(subject, architecture=name, runs={})
        try:
            for check in (shapes, purity, rows, labels, direction):
                check(other)
            objective = credits_of(other.build(), *other.batch(8)).objective
            # With an objective or an end-to-end loss, each token or position has its own gradient.
            # Credits, one vector per sample, do not imply these gradients.
            if not subject.method.end_to_end and objective is None:
                trains(other)
            found = "credits that point along the gradient on resmlp, but not here"
            expect(not exact or _is_exact(other), found)
        except Exception as error:
            if not isinstance(error.__cause__ or error, NotImplementedError):
                raise Finding(f"with {name}, {in_one_line(error, subject.method)}") from error


def _is_exact(subject: Subject) -> bool:
    """Return whether every credit points along the gradient at its own state."""
    values = cosines(subject.copy(), *subject.batch(HELD_OUT))
    return all(value > 0.999 for value in values)


# --- declarations ---------------------------------------------------------------------------------


def declarations(subject: Subject) -> None:
    """Expect that attributes have the types in MethodInfo and Method (text, boolean, cost >= 0),
    and that checkpoints keep all constants. To pass, correct the attributes, and decorate the class
    with @dataclass(frozen=True).
    """
    kind, wrong = type(subject.method), []
    traits = {name: value for name, value in vars(Method).items() if isinstance(value, bool)}
    for name, default in (asdict(MethodInfo()) | traits).items():
        value = getattr(kind, name, default)
        fits = isinstance(value, type(default))
        if not isinstance(default, str | bool):
            fits = type(value) in (int, float) and 0 <= value < math.inf
        wrong += [] if fits else [f"{name}={value!r}"]
    expect_none(wrong, "wrong {} in the class")
    annotations = inspect.get_annotations(kind).items()
    declared = {name for name, of in annotations if "ClassVar" not in str(of)}
    lost = declared - {constant.name for constant in fields(kind)}
    expect_none(sorted(lost), "{} that no checkpoint keeps")


# Trait -> the checks from which it exempts a method.
_FREED = {"across_samples": (rows, sizes), "own_objective": (trains, direction, downhill)}


def traits(subject: Subject) -> None:
    """Expect that a method needs every trait that exempts it from checks: without the trait, one of
    those checks fails. To pass, drop traits that it does not need.
    """
    kind = type(subject.method)
    for name, checks in _FREED.items():
        if not getattr(kind, name):
            continue
        strict = type(kind.__name__, (kind,), {name: False})(**vars(subject.method))
        try:
            for check in checks:
                check(replace(subject, method=strict))
        except Finding:
            continue
        raise Finding(f"found {name} declared without need")


CHECKS = {
    check.__name__: check
    for check in (
        process, apart, shapes, calls, purity, finite, determinism, declarations, graphs, labels,
        rows, direction, downhill, fresh, trains, stages, sizes, means, precision, memory, learns,
        moves, options, saved, traits, architectures,
    )
}  # fmt: skip
