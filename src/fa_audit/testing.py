"""Conformance: does a training method keep the promises that every audit of it relies on?

In a test file of your own, beside the module of your method:

    import pytest
    from fa_audit.testing import check_method
    from my_method import SignDFA

    @pytest.mark.parametrize("method", ["my_method:SignDFA", SignDFA, SignDFA(), "dfa"])
    def test_the_method_conforms(method):
        check_method(method)  # some seconds on a CPU; raises ConformanceError, one line for every failed check

`CHECKS` lists the checks; each one's docstring says what it proves. They train networks with a few hundred weights on
clouds of points, so they judge the wiring of a method and not its worth: a method that conforms has credits of the
right shape and sign that depend on nothing but their arguments, survives checkpoints and interruptions bit by bit,
and works with every option and architecture. Whether its credits are any good is what the audit measures.

Two conventions matter. Everything that a credit depends on lives in the parameters and buffers of the state. Feedback
that leads directly from the output error to a state has shape ``(d, C)`` or ``(C, d)``, or is a stack of those, so that
the checks of sign can replace it by the head's own weight.

Shapes: B batch, d width, L blocks, C classes.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import math
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fa_audit.core.errors import AuditError, listed
from fa_audit.core.metrics import cosine
from fa_audit.core.randomness import generator, seeded
from fa_audit.core.registry import class_literals
from fa_audit.data.dataset import Dataset, evaluation_batches
from fa_audit.experiments.spec import RunSpec
from fa_audit.methods import METHODS
from fa_audit.methods.method import Credits, Method
from fa_audit.networks import ARCHITECTURE_OPTIONS, ARCHITECTURES
from fa_audit.networks.trace import Trace, keeping_statistics, reference, trace
from fa_audit.training.checkpoint import Resume, learner_tensors, load_checkpoint, load_learner_tensors, save_checkpoint
from fa_audit.training.learner import Learner, build, learn, load_method, residual_energy
from fa_audit.training.loop import Trained, train

WIDTH, DEPTH, CLASSES = 13, 3, 6  # no two alike, and no hidden layer of a bridge: shapes tell feedback from the rest
OPTIONS = {"depth": DEPTH, "residual": True, "terminal_norm": True, "width": WIDTH}
SAMPLES, HELD_OUT = 97, 60  # the last minibatch of 16 holds a single sample
COMMON = {"epochs": 2, "batch_size": 16, "lr": 2e-2, "weight_decay": 0.0}  # decay would move what no gradient reaches
GENTLE = {"epochs": 10, "lr": 2e-3}  # auxiliary nets learn to point, errors stay of order one
SMALL = {"width": 16, "depth": 2}  # registered architectures are made no larger
SAME_ROW = 1e-4  # change of a credit, relative to the longest one, below which a sample did not matter
LEAST_COSINE = 0.1
SMALL_STEP = 1e-2  # relative to the norm of the weights
WELL_ABOVE_CHANCE = 0.6  # chance is 1/6


class ConformanceError(AssertionError):
    """A method breaks a promise. The message has one line for every failed check."""


class Finding(Exception):
    """What a check found, what it expected, and what to do."""


def check_method(method: str | type[Method] | Method) -> None:
    """Run every check of `CHECKS` on a method; the process's random state stays as it is.

    Args:
        method: a registered name, ``package.module:ClassName``, a class whose constants all have defaults, or an
            instance.

    Raises:
        ConformanceError: a check fails, or the method raises an exception in it; the other checks run all the same.
        AuditError: there is no such method.
    """
    subject = Subject(*_instance_and_name(method))
    with _one_thread():
        failures = {name: error for name in CHECKS if (error := _failure(CHECKS[name], subject))}
    if failures:
        lines = [f"  {name}: {_in_one_line(error, subject.method)}" for name, error in failures.items()]
        title = f"{subject.name} fails {len(failures)} of {len(CHECKS)} conformance checks:"
        raise ConformanceError("\n".join([title, *lines])) from next(iter(failures.values()))


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Tensors this small are slower on several, many times so on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _instance_and_name(method: str | type[Method] | Method) -> tuple[Method, str]:
    try:
        found = load_method(method) if isinstance(method, str) else method() if isinstance(method, type) else method
    except TypeError as error:
        raise AuditError(f"{method}: {error}. Give its constants defaults, or pass an instance.") from error
    if not isinstance(found, Method):
        raise AuditError(f"method: found {method!r}; expected a name, a Method class or an instance of one.")
    entry = _entry(type(found))
    registered = [name for name, other in METHODS.items() if other == entry]
    return found, (registered or [entry])[0]


def _entry(kind: type[Method]) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _failure(check: Callable[[Subject], None], subject: Subject) -> Exception | None:
    try:
        with seeded(subject.seed):
            check(subject)
    except Exception as error:  # whatever a method does wrong is a finding of this check
        return error
    return None


def _in_one_line(error: Exception, method: Method) -> str:
    if isinstance(error, Finding):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == _file_of(method)]
    place = (own or frames)[-1]
    what = " ".join(f"{type(error).__name__}: {error}".split())
    where = f"{Path(place.filename).name}, line {place.lineno}"
    return f"found {what} ({where}); expected no exception; mend what raises it."


def _file_of(method: Method) -> str | None:
    code = getattr(type(method).credits, "__code__", None)
    return code.co_filename if code else None


def _expect(holds: bool, found: object, expected: str, advice: str) -> None:
    if not holds:
        raise Finding(f"found {found}; expected {expected}; {advice}.")


# --- what is tested --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Subject:
    """A method under test and the trainings of it that several checks look at.

    Attributes:
        method: its constants; every learner gets an instance of its own.
        name: its registered name, or ``package.module:ClassName``.
        seed: of data, networks and trainings.
        runs: the trainings so far.
    """

    method: Method
    name: str
    seed: int = 0
    runs: dict[Any, Trained] = field(default_factory=dict)

    @cached_property
    def data(self) -> Dataset:
        """The clouds that the trainings learn."""
        return clouds(self.seed, (1, 8, 8), SAMPLES, HELD_OUT)

    def fresh(self) -> Method:
        """A new instance with the same constants and nothing else."""
        return copy.deepcopy(replace(self.method))

    def spec(self, **changes: Any) -> RunSpec:
        """A small specification; `changes` are its fields and options of the network."""
        options = {name: changes.pop(name, value) for name, value in OPTIONS.items()}
        values = {"dataset": self.data.name, "architecture": "resmlp", "method": self.name, "seed": self.seed}
        return RunSpec(**{**values, "architecture_options": tuple(options.items()), **COMMON, **changes})

    def build(self, **changes: Any) -> Learner:
        """An untrained learner."""
        return build(self.spec(**changes), self.data.image_shape, CLASSES, self.fresh())

    def trained(self, **changes: Any) -> Trained:
        """A training; equal ones are shared, so look at it and leave it as it is."""
        key = tuple(sorted(changes.items()))
        if key not in self.runs:
            self.runs[key] = train(self.spec(**changes), self.data, method=self.fresh())
        return self.runs[key]

    def copy(self, **changes: Any) -> Learner:
        """The learner of a training, to do with as one likes."""
        learner = self.build(**changes)
        load_learner_tensors(learner, learner_tensors(self.trained(**changes).learner))
        return learner

    def batch(self, count: int) -> tuple[Tensor, Tensor]:
        """The first `count` test images, normalised, and their labels."""
        x, labels = evaluation_batches(self.data)[0]
        return x[:count], labels[:count]


def clouds(seed: int, shape: tuple[int, int, int], train_count: int, test_count: int) -> Dataset:
    """Gaussian clouds, one a class, far enough apart for a linear classifier, as uint8 images of `shape`."""
    randomness = generator(seed, "clouds")
    labels = torch.arange(train_count + test_count) % CLASSES
    centres = 128 + 40 * torch.randn(CLASSES, *shape, generator=randomness)
    images = centres[labels] + 20 * torch.randn(len(labels), *shape, generator=randomness)
    images = images.round().clamp(0, 255).to(torch.uint8)
    arrays = [part for whole in (images, labels) for part in whole.split([train_count, test_count])]
    names = ("train_images", "test_images", "train_labels", "test_labels")
    channels = {"mean": (0.5,) * shape[0], "std": (0.25,) * shape[0]}
    how = {"name": "clouds", "classes": CLASSES, "scale": 255, "padding": 0, "flip": False}
    return Dataset(**dict(zip(names, arrays, strict=True)), **channels, **how)


def _credits(learner: Learner, x: Tensor, labels: Tensor) -> Credits:
    run = trace(learner.network, x, local=not learner.method.end_to_end)
    return learner.method.credits(learner.network, run, labels, learner.state)


def _named(credits: Credits) -> dict[str, Tensor]:
    """The credits, bottom to top."""
    return {"embedding": credits.embedding} | {f"block {layer}": a for layer, a in enumerate(credits.blocks)}


def _differing(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> list[str]:
    """Names under which not the same bits stand (NaN equals NaN), or which only one side has."""
    return [name for name in one | other if not (name in one and name in other and _same(one[name], other[name]))]


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool(((one == other) | ((one != one) & (other != other))).all())


def _odd(tensors: Mapping[str, Tensor]) -> list[str]:
    return [name for name, tensor in tensors.items() if not tensor.isfinite().all()]


def _few(names: list[str]) -> str:
    return listed(names, most=3)


# --- credits ---------------------------------------------------------------------------------------------------------


def shapes(subject: Subject) -> None:
    """One credit ``(B, d)`` for every block and one for the embedding, whatever the depth, the skip and the batch."""
    for changes in ({}, {"residual": False}, {"terminal_norm": False}, {"depth": 1}, {"shallow": True}):
        learner = subject.build(**changes)
        for count in (5, 1):
            credits = _credits(learner, *subject.batch(count))
            found = [tuple(a.shape) for a in (*credits.blocks, credits.embedding)]
            layers = len(learner.network.blocks)
            expected = f"{layers} x ({count}, {WIDTH}) and ({count}, {WIDTH}) for the embedding"
            advice = "return Credits(blocks, embedding) of rows as long as network.width"
            _expect(found == [(count, WIDTH)] * (layers + 1), f"{found} with {changes}", expected, advice)


def detached(subject: Subject) -> None:
    """Credits are targets, not part of a graph; only an objective is, a scalar that something can descend."""
    credits = _credits(subject.copy(), *subject.batch(5))
    attached = [name for name, a in _named(credits).items() if a.requires_grad]
    _expect(not attached, f"a graph behind the credits of {_few(attached)}", "none", "return credits.detach()")
    if (objective := credits.objective) is not None:
        found = f"an objective of shape {tuple(objective.shape)}, requires_grad={objective.requires_grad}"
        scalar = objective.dim() == 0 and objective.requires_grad
        _expect(scalar, found, "a scalar with a graph", "return a mean over the batch, not detached")


def finite(subject: Subject) -> None:
    """No NaN or Inf, neither in an untrained network nor in a trained one."""
    for when, learner in (("untrained", subject.build()), ("trained", subject.copy())):
        odd = _odd(_named(_credits(learner, *subject.batch(20))) | learner_tensors(learner))
        found, advice = f"NaN or Inf in {_few(odd)} of the {when} learner", "guard divisions and logs"
        _expect(not odd, found, "finite numbers", advice)


def determinism(subject: Subject) -> None:
    """Same arguments, same credits; same specification, same training: whatever was drawn elsewhere before."""
    learner, batch = subject.copy(), subject.batch(8)
    with seeded(1):
        first = {name: a.clone() for name, a in _named(_credits(learner, *batch)).items()}
    with seeded(2):
        odd = _differing(first, _named(_credits(learner, *batch)))
    advice = "draw in init_state from its generator, in auxiliary_loss and update_state from `randomness`, nowhere else"
    _expect(not odd, f"other credits of {_few(odd)} in a second call", "the same bits", advice)
    with seeded(3):
        again = train(subject.spec(), subject.data, method=subject.fresh())
    odd = _differing(*map(learner_tensors, (subject.trained().learner, again.learner)))
    _expect(not odd, f"other {_few(odd)} after a second training", "the same bits", advice)


def purity(subject: Subject) -> None:
    """`credits` changes no parameter, buffer, gradient, mode or input, and draws nothing from the global stream."""
    learner, (x, labels) = subject.copy(frozen_blocks=1), subject.batch(8)
    learner.train_mode()
    for parameter in [*learner.network.parameters(), *learner.state.parameters()]:
        parameter.grad = torch.full_like(parameter, 0.5) if parameter.requires_grad else None
    changed = _changed_by_credits(learner, x, labels)
    advice = "move it to update_state, or copy first"
    _expect(not changed, f"credits changing {_few(changed)}", "nothing changed", advice)


def _changed_by_credits(learner: Learner, x: Tensor, labels: Tensor) -> list[str]:
    run = trace(learner.network, x, local=not learner.method.end_to_end)
    before = dict(_snapshot(learner, run, labels))
    with keeping_statistics(learner.network):  # as the engine does
        learner.method.credits(learner.network, run, labels, learner.state)
    return _differing(before, dict(_snapshot(learner, run, labels)))


def _snapshot(learner: Learner, run: Trace, labels: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Copies of everything that `credits` can reach and must not change, by name."""
    for part, root in (("network", learner.network), ("state", learner.state)):
        for name, parameter in root.named_parameters():
            yield f"{part}.{name}", parameter.detach().clone()
            yield f"requires_grad of {part}.{name}", torch.tensor(parameter.requires_grad)
            if parameter.grad is not None:
                yield f"the gradient of {part}.{name}", parameter.grad.clone()
        for name, buffer in root.named_buffers():
            yield f"{part}.{name}", buffer.clone()
        for name, module in root.named_modules():
            yield f"the mode of {part}.{name}", torch.tensor(module.training)
    for name, tensors in (("states", run.states), ("residuals", run.residuals), ("logits", (run.logits,))):
        yield from ((f"trace.{name} {index}", tensor.detach().clone()) for index, tensor in enumerate(tensors))
    yield "labels", labels.clone()
    yield "the global random state", torch.get_rng_state()


def rows(subject: Subject) -> None:
    """Row i of a credit belongs to sample i: another image and label there change that row, and no other row."""
    learner, (x, labels) = subject.copy(), subject.batch(12)
    labels = (labels + 1) % CLASSES  # wrong ones: errors of order one
    before = _named(_credits(learner, x[:6], labels[:6]))
    for row in range(6):
        index = [6 + row if other == row else other for other in range(6)]
        own_label = torch.tensor([other == row for other in range(6)]).long()
        after = _named(_credits(learner, x[index], (labels[:6] + own_label) % CLASSES))
        for name, credit in before.items():
            scale = torch.stack([credit, after[name]]).norm(dim=-1).max()
            changed = ((after[name] - credit).norm(dim=-1) > SAME_ROW * scale).nonzero().flatten().tolist()
            found = f"rows {changed} of the credit of {name} following sample {row}"
            _expect(changed == [row], found, f"row {row} alone", "compute every sample's credit from its own row")


# --- the sign --------------------------------------------------------------------------------------------------------


def direction(subject: Subject) -> None:
    """The topmost credit stands for the gradient, not its negative: with true feedback it points along ``g_L``.

    Random feedback cannot have a wrong sign, since -B is as good a draw as B; the head's own weight can. So after a
    short training it replaces every direct feedback matrix in the state. The topmost credit is the last block's, or the
    embedding's in a network without blocks.
    """
    for shallow in (False, True):
        learner, batch = aligned(subject.copy(**GENTLE, shallow=shallow)), subject.batch(HELD_OUT)
        name, credit = [*_named(_credits(learner, *batch)).items()][-1]
        measured = cosine(credit, reference(learner.network, *batch).gradients[-1]).value
        value = math.nan if measured is None else measured
        expected = f"more than {LEAST_COSINE} with the head's weight as feedback"
        advice = "credits are gradients of the loss, which training descends: check the sign"
        found = f"a mean cosine of {value:.3f} between the credit of {name} and g_L"
        _expect(value > LEAST_COSINE, found, expected, advice)


def downhill(subject: Subject) -> None:
    """A small step of the topmost part against the gradient that the engine accumulates lowers the batch's loss.

    The state is prepared as for `direction`. Unlike that check it sees the sign of an objective.
    """
    for shallow in (False, True):
        learner, (x, labels) = aligned(subject.copy(**GENTLE, shallow=shallow)), subject.batch(HELD_OUT)
        part = [learner.network.embed, *learner.network.blocks][-1]
        learn(learner, x, labels, generator(subject.seed, "method"))
        steps = {p: p.grad.double() for p in part.parameters() if p.grad is not None}
        _expect(bool(steps), "no gradient on the topmost part", "one", "return a credit for every block")
        before = _loss(learner, x, labels)
        _step(steps)
        after = _loss(learner, x, labels)
        found, advice = f"a loss that goes from {before:.6f} to {after:.6f}", "credits and objectives are descended"
        _expect(after < before, found, "a lower one after a small step", f"{advice}: check the sign")


def aligned(learner: Learner) -> Learner:
    """The same learner, with the head's weight in place of every feedback matrix ``(d, C)`` or ``(C, d)``."""
    shape = (learner.network.classes, learner.network.width)
    weight = next(p.detach() for p in learner.network.head.parameters() if p.shape == shape)
    with torch.no_grad():
        for tensor in [*learner.state.parameters(), *learner.state.buffers()]:
            for true in (weight, weight.T):
                if tensor.shape[-2:] == true.shape:
                    tensor.copy_(true.expand_as(tensor))
    return learner


@torch.no_grad()
def _step(slopes: dict[nn.Parameter, Tensor]) -> None:
    """Move parameters against their gradients, by a small part of their common norm."""
    size, slope = (torch.cat([t.flatten() for t in tensors]).norm() for tensors in (slopes, slopes.values()))
    for parameter in slopes:
        parameter.sub_(SMALL_STEP * size / slope * slopes[parameter])


@torch.no_grad()
def _loss(learner: Learner, x: Tensor, labels: Tensor) -> float:
    """Cross-entropy in float64, in which small steps show."""
    return F.cross_entropy(learner.network.double()(x.double()), labels).item()


# --- training --------------------------------------------------------------------------------------------------------


def learns(subject: Subject) -> None:
    """Held-out accuracy ends far above chance, with the penalty too, but not on random targets: labels matter."""
    for changes, reaches in (({}, True), ({"penalty": 0.01}, True), ({"random_targets": True}, False)):
        accuracy = subject.trained(epochs=6, terminal_norm=False, **changes).accuracy
        bound = f"{'at least' if reaches else 'less than'} {WELL_ABOVE_CHANCE} (chance is {1 / CLASSES:.2f})"
        advice = "check scale and sign of the credits, and that `labels` and nothing else tells the target"
        found = f"accuracy {accuracy:.2f} on separable classes with {changes or 'no options'}"
        _expect((accuracy >= WELL_ABOVE_CHANCE) == reaches, found, bound, advice)


def moves(subject: Subject) -> None:
    """Every parameter of embedding, blocks and head is trained."""
    moved = _moved(subject)
    still = [name for name, _ in subject.build().network.named_parameters() if name not in moved]
    _expect(not still, f"{_few(still)} unmoved by training", "every parameter moved", "give every block a credit")


def frozen(subject: Subject) -> None:
    """Frozen blocks keep every bit, stay frozen and collect no gradient; everything else still moves."""
    for count in (1, DEPTH):
        network, moved = subject.trained(frozen_blocks=count).learner.network, _moved(subject, frozen_blocks=count)
        fixed = tuple(f"blocks.{layer}." for layer in range(count))
        advice = "leave the parameters of the network to the engine"
        odd = [name for name in moved if name.startswith(fixed)]
        _expect(not odd, f"{_few(odd)} moved with frozen_blocks={count}", "every bit kept", advice)
        free = [p for p in network.blocks[:count].parameters() if p.requires_grad or p.grad is not None]
        _expect(not free, f"{len(free)} frozen parameters with gradients switched on", "none", advice)
        still = [n for n, _ in network.named_parameters() if not n.startswith(fixed) and n not in moved]
        _expect(not still, f"{_few(still)} unmoved with frozen_blocks={count}", "the rest trained", "give them credits")


def _moved(subject: Subject, **changes: Any) -> list[str]:
    """Names of the network's parameters and buffers that training has changed."""
    before, after = subject.build(**changes), subject.trained(**changes).learner
    return _differing(before.network.state_dict(), after.network.state_dict())


def options(subject: Subject) -> None:
    """Training ends with finite numbers under every combination of options."""
    some = {"penalty": 0.01, "frozen_blocks": 2}
    shallow, noise = {"shallow": True}, {"random_targets": True}
    for changes in (some, some | noise, shallow, shallow | noise):
        odd = _odd(learner_tensors(subject.trained(batch_size=48, **changes).learner))
        _expect(not odd, f"NaN or Inf in {_few(odd)} with {changes}", "finite numbers", "mind networks without blocks")


def penalty(subject: Subject) -> None:
    """The residual penalty acts beside the method's credits: a large one leaves less energy in the residuals."""
    free, penalised = (_energy(subject, changes) for changes in ({}, {"penalty": 10.0}))
    found = f"residual energy {penalised:.3g} with penalty 10 and {free:.3g} without"
    _expect(penalised < free, found, "less with the penalty", "leave the gradients of the network to the engine")


def _energy(subject: Subject, changes: dict[str, Any]) -> float:
    network, (x, _) = subject.trained(**changes).learner.network, subject.batch(HELD_OUT)
    return residual_energy(trace(network, x, local=True).residuals).item()


def auxiliary(subject: Subject) -> None:
    """The auxiliary loss is a scalar that trains the state and leaves no gradient on the network."""
    learner, (x, labels) = subject.copy(), subject.batch(16)
    run = trace(learner.network, x, local=not learner.method.end_to_end)
    randomness = generator(subject.seed, "method")
    loss = learner.method.auxiliary_loss(learner.network, run, labels, learner.state, randomness)
    own = [p for p in learner.state.parameters() if p.requires_grad]
    if loss is not None:
        _expect(loss.dim() == 0, f"an auxiliary loss of shape {tuple(loss.shape)}", "a scalar", "return a mean")
        loss.backward(inputs=own)
        reached = any(p.grad is not None and p.grad.any() for p in own)
        _expect(reached, "no gradient on the state", "some", "let the auxiliary loss depend on the state's parameters")
    pushed = [name for name, p in learner.network.named_parameters() if p.grad is not None]
    advice = "return the loss without calling backward, and keep the network's parameters out of the state"
    _expect(not pushed, f"a gradient on {_few(pushed)}", "none on the network", advice)


# --- files -----------------------------------------------------------------------------------------------------------


def saved(subject: Subject) -> None:
    """Parameters and buffers hold everything that credits depend on: copied or read back they give the same bits."""
    original, batch = subject.trained().learner, subject.batch(8)
    credits = _named(_credits(original, *batch))
    advice = "keep it in parameters or persistent buffers of the state, not in attributes nor in the method"
    for how, learner in (("copied into another learner", _copied), ("saved and loaded", _saved_and_loaded)):
        odd = _differing(credits, _named(_credits(other := learner(subject, original), *batch)))
        _expect(not odd, f"other credits of {_few(odd)} once {how}", "the same bits", advice)
        found = asdict(other.method)
        _expect(found == asdict(original.method), f"constants {found} once {how}", "those before", "use plain scalars")


def _copied(subject: Subject, original: Learner) -> Learner:
    """The tensors of `original` in a learner that began with other random draws."""
    other = subject.build(seed=subject.seed + 1)
    load_learner_tensors(other, learner_tensors(original))
    return other


def _saved_and_loaded(subject: Subject, original: Learner) -> Learner:
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(original, path := Path(folder) / "checkpoint")
        return load_checkpoint(path, method=None if subject.name in METHODS else subject.fresh())


def resume(subject: Subject) -> None:
    """A training that was interrupted after its first epoch and goes on ends with the bits of one that was not."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "resume"
        with contextlib.suppress(Interrupted):
            train(subject.spec(), subject.data, resume=Interrupting(path, "same"), method=subject.fresh())
        again = train(subject.spec(), subject.data, resume=Resume(path, "same"), method=subject.fresh())
    odd = _differing(*map(learner_tensors, (subject.trained().learner, again.learner)))
    advice = "keep what changes during training in parameters or persistent buffers of the state"
    _expect(not odd, f"other {_few(odd)} after an interruption", "the same bits", advice)


class Interrupted(Exception):
    """The interruption of a training."""


class Interrupting(Resume):
    """Interrupts a training as soon as its first epoch is kept."""

    def save(self, learner: Learner, optimiser: torch.optim.Optimizer, progress: dict[str, Any]) -> None:
        super().save(learner, optimiser, progress)
        raise Interrupted


# --- the rest --------------------------------------------------------------------------------------------------------


def architectures(subject: Subject) -> None:
    """Every registered architecture, made small, can be trained; credits fit its states and change nothing in it."""
    data = clouds(subject.seed, (3, 8, 8), 24, 12)
    for name in ARCHITECTURES:
        try:
            _check_architecture(subject, name, data)
        except Exception as error:
            raise Finding(f"with {name}, {_in_one_line(error, subject.method)}") from error


def _check_architecture(subject: Subject, name: str, data: Dataset) -> None:
    defaults = ARCHITECTURE_OPTIONS[name]
    small = defaults | {option: min(most, defaults[option]) for option, most in SMALL.items() if option in defaults}
    spec = subject.spec(batch_size=12, architecture=name, architecture_options=tuple(small.items()))
    learner, batch = train(spec, data, method=subject.fresh()).learner, evaluation_batches(data)[0]
    credits = _named(_credits(learner, *batch))
    found = [tuple(a.shape) for a in credits.values()]
    expected = [(len(batch[1]), learner.network.width)] * (len(learner.network.blocks) + 1)
    _expect(found == expected, f"credits {found}", f"{expected}", "read vectors with network.read and read_gradient")
    odd = _odd(learner_tensors(learner) | credits)
    _expect(not odd, f"NaN or Inf in {_few(odd)}", "finite numbers", "guard divisions and logs")
    learner.train_mode()
    changed = [place for place in _changed_by_credits(learner, *batch) if place.startswith("network.")]
    advice = "move it to update_state, or copy first"
    _expect(not changed, f"credits changing {_few(changed)}", "nothing changed", advice)


def declarations(subject: Subject) -> None:
    """The class says what the method is and what it costs, in literals, as tables and the workflow's plan need it."""
    kind = type(subject.method)
    said = {name: getattr(kind, name) for name in DECLARED}
    odd = [f"{name}={value!r}" for name, value in said.items() if not DECLARED[name][0](value)]
    expected = "; ".join(f"{name} {text}" for name, (_, text) in DECLARED.items() if not DECLARED[name][0](said[name]))
    _expect(not odd, ", ".join(odd), expected, "assign it in the class body, as ClassVar")
    try:
        read = class_literals("fa_audit.methods.method:Method") | class_literals(_entry(kind))
    except AuditError:  # a class inside a function: no workflow can name it
        read = said
    odd = [
        f"{name}={read[name]!r} in the source, {said[name]!r} in the class"
        for name in COSTS
        if read[name] != said[name]
    ]
    _expect(not odd, ", ".join(odd), "the same", "assign costs as literals in a class body")
    constants = {constant.name for constant in fields(kind)}
    lost = [n for n, kind_of in inspect.get_annotations(kind).items() if "ClassVar" not in str(kind_of)]
    lost = [name for name in lost if name not in constants]
    _expect(not lost, f"{_few(lost)} that no checkpoint keeps", "constants", "decorate with @dataclass(frozen=True)")


def _is_line(value: object) -> bool:
    return isinstance(value, str) and len(value.splitlines()) <= 1


COSTS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "relative_time": (lambda value: type(value) in (int, float) and 0 < value < math.inf, "a number > 0"),
    "memory_mb": (lambda value: type(value) is int and value >= 0, "an integer >= 0"),
}
DECLARED = (
    dict.fromkeys(("summary", "equation", "feedback", "source", "passes"), (_is_line, "at most one line of text"))
    | COSTS
    | dict.fromkeys(("end_to_end", "random_feedback", "decays_state"), (lambda v: isinstance(v, bool), "a bool"))
)

CHECKS: dict[str, Callable[[Subject], None]] = {
    check.__name__: check
    for check in (
        declarations, shapes, detached, finite, determinism, purity, rows, direction, downhill, learns, moves, frozen,
        options, penalty, auxiliary, saved, resume, architectures,
    )
}  # fmt: skip
