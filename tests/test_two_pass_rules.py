"""PEPITA and forward-forward against plain torch in float64, and broken variants that the conformance suite finds."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from networks import assert_same, block_by_hand, head_by_hand
from torch import nn

from fa_audit.methods import forward_forward
from fa_audit.methods.dfa import DFA
from fa_audit.methods.dtp import DTP
from fa_audit.methods.ep import EP
from fa_audit.methods.forward_forward import ForwardForward
from fa_audit.methods.kolen_pollack import KolenPollack
from fa_audit.methods.layerwise import Layerwise
from fa_audit.methods.local_losses import LocalSim
from fa_audit.methods.method import Method, load_method
from fa_audit.methods.pepita import PEPITA
from fa_audit.methods.transport import block_weights
from fa_audit.methods.weight_mirror import WeightMirror
from fa_audit.networks.trace import accuracy_of, trace
from fa_audit.testing import CHECKS
from fa_audit.testing.findings import Finding
from fa_audit.testing.subject import Subject
from fa_audit.training.learner import build, learn

SHAPE, CLASSES, DEPTH = (1, 4, 4), 3, 2
RULES = ("pepita", "forward_forward")


@pytest.fixture
def make_learner(make_spec):
    """Learners in float64 with two blocks that do something."""

    def make(name, **options):
        learner = build(make_spec(name, width=8, depth=DEPTH, seed=3, **options), SHAPE, CLASSES)
        randomness = torch.Generator().manual_seed(3)
        for block in learner.network.double().blocks:
            nn.init.normal_(block.outer.weight, std=0.5, generator=randomness)
        learner.state.double()
        return learner

    return make


def credits_of(learner, x, labels):
    return learner.method.credits(learner.network, trace(learner.network, x, local=True), labels, learner.state)


def listed(credits):
    return [credits.embedding, *credits.blocks]


def states(network, x, prepare=lambda h: h):
    """States of a pass, and what each layer adds to its own input, by plain torch."""
    embed = network.embed[1]
    hidden = [x.flatten(1) @ embed.weight.T + embed.bias]
    outputs = hidden[:]
    for layer in range(DEPTH):
        f, h = block_by_hand("resmlp", network, layer, prepare(hidden[-1].detach()), False)
        outputs.append(f)
        hidden.append(h)
    return hidden, outputs


def gradients(network, loss):
    return torch.autograd.grad(loss, [*network.embed.parameters(), *network.blocks.parameters()])


def assert_update(learner, x, labels, loss):
    """One step of `learn` leaves the gradients of `loss` on embedding and blocks."""
    expected = gradients(learner.network, loss)
    learn(learner, x, labels, torch.Generator())
    for p, g in zip([*learner.network.embed.parameters(), *learner.network.blocks.parameters()], expected, strict=True):
        assert (p.grad - g).norm() <= 1e-10 * g.norm() and g.any()


def pepita_by_hand(learner, x, labels):
    """Both passes of PEPITA: states of the first, states and outputs of the second."""
    first, _ = states(learner.network, x)
    p = head_by_hand("resmlp", learner.network, first[-1]).softmax(1).detach()
    e = p - torch.eye(CLASSES, dtype=p.dtype)[labels]
    shifted = x + torch.einsum("ic,bc->bi", learner.state.F, e).view(x.shape)
    return first, *states(learner.network, shifted)


def test_pepitas_credits_are_first_pass_minus_second_pass(make_learner, batch):
    learner = make_learner("pepita")
    first, second, _ = pepita_by_hand(learner, *batch)
    for found, h, other in zip(listed(credits_of(learner, *batch)), first, second, strict=True):
        assert_same(found, (h - other).detach())


def test_pepita_learns_at_the_second_passs_inputs(make_learner, batch):
    learner = make_learner("pepita")
    learner.state.F.mul_(50)  # the passes differ by far more than rounding
    first, second, outputs = pepita_by_hand(learner, *batch)
    terms = [(f * (h - other).detach()).sum(1) for f, h, other in zip(outputs, first, second, strict=True)]
    assert_update(learner, *batch, sum(terms).mean())


def test_pepita_without_an_error_has_no_credit(make_learner, batch):
    learner, (x, _) = make_learner("pepita"), batch
    with torch.no_grad():
        learner.network.head.linear.bias.copy_(torch.tensor([1000.0, 0, 0]))
    assert not any(a.any() for a in listed(credits_of(learner, x, torch.zeros(len(x)).long())))


def test_pepitas_feedback_is_uniform_with_the_papers_limits(make_spec):
    feedback = build(make_spec("pepita"), (3, 32, 32), CLASSES).state.F
    limit = 0.05 * math.sqrt(6 / 3072)
    assert feedback.shape == (3072, CLASSES) and 0.99 * limit < feedback.abs().max() <= limit
    assert feedback.mean().abs() < 0.05 * limit and feedback.std() == pytest.approx(limit / math.sqrt(3), rel=0.02)


def labelled(x, labels):
    """Images with a label over their first pixels, one by one."""
    images = x.clone()
    for image, label in zip(images.view(len(x), -1), labels.tolist(), strict=True):
        least, most = image.min().item(), image.max().item()
        for c in range(CLASSES):
            image[c] = most if c == label else least
    return images


def of_unit_length(h):
    return h / h.square().mean(1, keepdim=True).sqrt()


def forward_forward_by_hand(learner, x, labels):
    """States of the labelled images, with the given labels and with the most probable wrong ones."""
    logits = learner.network(x)
    wrong = [max(set(range(CLASSES)) - {y}, key=row.__getitem__) for row, y in zip(logits.tolist(), labels.tolist())]
    images = [labelled(x, labels), labelled(x, torch.tensor(wrong))]
    return [states(learner.network, image, of_unit_length)[0] for image in images]


def test_forward_forwards_credits_are_the_mean_gradients_of_both_losses(make_learner, batch):
    learner = make_learner("forward_forward")
    passes = forward_forward_by_hand(learner, *batch)
    for found, positive, negative in zip(listed(credits_of(learner, *batch)), *passes, strict=True):
        up, down = (h * torch.sigmoid(s * (1 - h.square().mean(1, True))) for h, s in ((positive, 1), (negative, -1)))
        assert (found - (down - up) / 8).norm() < 1e-6 * found.norm()  # 1e-8 beside the rms


def test_forward_forward_descends_the_mean_of_both_losses(make_learner, batch):
    learner = make_learner("forward_forward")
    positive, negative = forward_forward_by_hand(learner, *batch)
    signed = [(1 - h.square().mean(1)) for h in positive] + [(h.square().mean(1) - 1) for h in negative]
    expected = sum((1 + g.exp()).log().mean() for g in signed) / 2
    assert credits_of(learner, *batch).objective.item() == pytest.approx(expected.item(), rel=1e-7)
    for found, g in zip(gradients(learner.network, credits_of(learner, *batch).objective),
                        gradients(learner.network, expected), strict=True):  # fmt: skip
        assert (found - g).norm() < 1e-6 * g.norm()


def test_a_layers_loss_does_not_depend_on_the_length_of_its_input(make_learner, batch):
    learner, (x, _) = make_learner("forward_forward"), batch
    before = forward_forward.states_of(learner.network, x)
    with torch.no_grad():
        [p.mul_(7) for p in learner.network.embed.parameters()]
    after = forward_forward.states_of(learner.network, x)
    assert torch.allclose(after[0], 7 * before[0])
    assert all(torch.allclose(h, other, rtol=1e-6) for h, other in zip(before[1:], after[1:], strict=True))


def test_a_label_covers_the_first_values_of_an_image_and_no_others(batch):
    x, labels = batch
    assert torch.equal(forward_forward.overlaid(x, F.one_hot(labels, CLASSES).double()), labelled(x, labels))


@pytest.mark.parametrize("name", RULES)
def test_labels_reach_no_test_pass(make_learner, batch, name):
    learner, (x, labels) = make_learner(name), batch
    before, parts = learner.network(x), sum(1 for _ in learner.network.modules())
    credits_of(learner, x, labels)
    assert torch.equal(learner.network(x), before) and sum(1 for _ in learner.network.modules()) == parts


@pytest.mark.parametrize("name", RULES)
def test_a_frozen_network_has_a_step(make_learner, batch, name):
    learner = make_learner(name, frozen_blocks=DEPTH, frozen_embedding=True)
    learn(learner, *batch, torch.Generator())
    assert [n for n, p in learner.network.named_parameters() if p.grad is not None and not n.startswith("head")] == []


class Stale(PEPITA):
    """Learns towards a label of the batch before, which it keeps where the checkpoint does."""

    def init_state(self, network, generator):
        state = super().init_state(network, generator)
        state.register_buffer("kept", torch.tensor(0))
        return state

    def auxiliary_loss(self, network, trace, labels, state, randomness):
        state.kept.copy_(labels[0])

    def credits(self, network, trace, labels, state):
        return super().credits(network, trace, state.kept.expand_as(labels), state)


class Keeping(PEPITA):
    """Learns from the credits of the batch before, which it keeps as an attribute."""

    def credits(self, network, trace, labels, state):
        before, state.before = getattr(state, "before", None), super().credits(network, trace, labels, state)
        return before if before and len(before.embedding) == len(labels) else state.before


class Still(PEPITA):
    """Its second pass is the first one again."""

    def credits(self, network, trace, labels, state):
        still = nn.Module()
        still.register_buffer("F", 0 * state.F)
        return super().credits(network, trace, labels, still)


class Against(PEPITA):
    """Subtracts the error from its input."""

    def credits(self, network, trace, labels, state):
        other = nn.Module()
        other.register_buffer("F", -state.F)
        return super().credits(network, trace, labels, other)


class Whispering(DFA):
    """Tells the head the labels of the batch that it saw last."""

    def credits(self, network, trace, labels, state):
        own, told = super().credits(network, trace, labels, state), F.one_hot(labels, network.classes) * 1e3
        network.head.register_forward_hook(lambda _, __, y: y + told if len(y) == len(told) else y)
        return own


class Remembering(ForwardForward):
    """Keeps the labels in its state."""

    def init_state(self, network, generator):
        state = nn.Module()
        state.labels = None
        return state

    def credits(self, network, trace, labels, state):
        state.labels = labels
        return super().credits(network, trace, labels, state)


class Equal(ForwardForward):
    """Its negatives are its positives."""

    def credits(self, network, trace, labels, state):
        true = F.one_hot(labels, network.classes).to(trace.logits) * 1e6
        own = super().credits(network, trace, labels, state)
        positive = forward_forward.states_of(network, forward_forward.overlaid(trace.x, (true > 0).to(trace.logits)))
        losses = [forward_forward.losses_of(h, 1) + forward_forward.losses_of(h, -1) for h in positive]
        return replace(own, objective=sum(losses).mean() / 2)


class Swapped(ForwardForward):
    """Ascends its objective."""

    def credits(self, network, trace, labels, state):
        own = super().credits(network, trace, labels, state)
        return replace(own, objective=-own.objective)


class Tampering(ForwardForward):
    """Scales the gradients of its blocks."""

    def update_state(self, network, state, randomness):
        [p.grad.mul_(3) for p in network.blocks.parameters()]


def declaring(kind, **flags):
    return type(kind.__name__, (kind,), flags)


def opposed(kind, *, objective=1, **flags):
    """A rule that reports its credits with the wrong sign, and descends `objective` times its own."""

    def credits(self, *given):
        own = kind.credits(self, *given)
        turned = [-own.embedding, *(-a for a in own.blocks)]
        return replace(own, embedding=turned[0], blocks=tuple(turned[1:]), objective=objective * own.objective)

    return declaring(kind, credits=credits, **flags)


def upside_down(kind, block):
    """A rule with the wrong sign in one block, and the right one at the top."""

    def credits(self, *given):
        own = kind.credits(self, *given)
        return replace(own, blocks=tuple(-a if i == block else a for i, a in enumerate(own.blocks)))

    return declaring(kind, credits=credits)


def silent(kind):
    """A rule that declares a loss of its own and returns none."""
    return declaring(kind, credits=lambda self, *given: replace(kind.credits(self, *given), objective=None))


class Untaught(DTP):
    """Its inverses stay as they were drawn."""

    def auxiliary_loss(self, *given):
        return None


class Uncorrected(DTP):
    """Its targets are what the inverses make of the targets above."""

    @torch.no_grad()
    def credits(self, network, trace, labels, state):
        own = super().credits(network, trace, labels, state)
        descending = [own.blocks[-1]] if own.blocks else [own.embedding]
        for layer in reversed(range(len(network.blocks))):
            h, above = trace.states[layer : layer + 2]
            target = above - self.eta * descending[-1]
            descending.append((network.read(h) - target - state[layer](target)) / self.eta)
        embedding, *blocks = reversed(descending)
        return replace(own, embedding=embedding, blocks=tuple(blocks))


class Unmirrored(WeightMirror):
    """Its feedback stays as it was drawn."""

    def update_state(self, *given):
        pass


class Unlearning(WeightMirror):
    """Its feedback turns away from the weights."""

    def update_state(self, network, state, randomness):
        before = {name: b * (1 - self.decay) for name, b in state.named_buffers()}
        super().update_state(network, state, randomness)
        for name, b in state.named_buffers():
            b.copy_(2 * before[name] - b)


class Parting(KolenPollack):
    """Its feedback steps where the weights come from."""

    def update_state(self, network, state, randomness):
        super().update_state(network, state, randomness)
        for partner in state.parameters():
            partner.grad = -partner.grad


class Averaging(KolenPollack):
    """Its state keeps an average of gradients, which point against the weights that they made."""

    def init_state(self, network, generator):
        state = super().init_state(network, generator)
        for name, weight in block_weights(network):
            state.register_buffer(f"mean_{name}", torch.zeros_like(weight))
        return state

    def update_state(self, network, state, randomness):
        super().update_state(network, state, randomness)
        for name, weight in block_weights(network):
            if weight.grad is not None:
                state.get_buffer(f"mean_{name}").lerp_(weight.grad, 0.1)


class GoingOn(Layerwise):
    """Blocks whose stage is over go on."""

    def learning(self, state):
        return range(min(state.stage + 2, len(state)))


class Penalised(Layerwise):
    """A penalty moves the blocks outside their stage."""

    def update_state(self, *given):
        pass


BROKEN = [
    (Uncorrected, "labels", "neither follows the label nor vanishes"),
    (Unmirrored, "moves", "feedback='learned B"),
    (partial(WeightMirror, eta=0.0, decay=0.0), "moves", "feedback='learned B"),
    (declaring(WeightMirror, update_state=Method.update_state), "moves", "feedback='learned B"),
    (declaring(Unlearning, feedback="learned B"), "moves", "learned feedback .* against 0_inner_weight"),
    (declaring(Parting, feedback="learned B"), "moves", "learned feedback .* against 0_inner_weight"),
    (GoingOn, "stages", r"blocks \[0, 0, 0, 1, 0, 1,.* learning"),
    (Penalised, "stages", "blocks .* learning"),
    (Stale, "labels", "ignores the labels"),
    (Keeping, "calls", "another batch was seen|overwritten"),
    (Keeping, "purity", "changing state..before"),
    (Still, "moves", "unmoved by training"),
    (Against, "direction", "cosine of -"),
    (Whispering, "purity", "changing network.head._forward_hooks"),
    (Whispering, "learns", "random_targets"),
    (Remembering, "purity", "changing state..labels"),
    (Equal, "downhill", "for the labels and .* ratio below"),
    (Swapped, "downhill", "for the labels and .* ratio below"),
    (Tampering, "trains", "gradients of blocks.0"),
    (declaring(ForwardForward, own_objective=False), "sizes", "declare own_objective"),
    (declaring(PEPITA, own_objective=True), "traits", "own_objective declared without need"),
    (declaring(EP, own_objective=True), "traits", "own_objective declared without need"),
    (declaring(PEPITA, across_samples=True), "traits", "across_samples declared without need"),
    *((opposed(kind), "trains", "its credit implies") for kind in (ForwardForward, LocalSim, Layerwise)),
    (opposed(EP, own_objective=True), "trains", "its credit implies"),
    (opposed(PEPITA, objective=-1, own_objective=True), "direction", "cosine of -"),
    (upside_down(DFA, 0), "direction", "cosine of -.* block 0 "),
    (upside_down(DTP, 1), "direction", "cosine of -.* block 1 "),
    (silent(ForwardForward), "shapes", "own_objective and no objective"),
    (Untaught, "moves", "of the state unmoved by training"),
]


def test_what_carries_no_credit_is_no_learned_feedback():
    CHECKS["moves"](Subject(declaring(Averaging, feedback="learned B")(), "mine"))


@pytest.mark.parametrize(("kind", "check", "words"), BROKEN)
def test_a_broken_rule_of_two_passes_is_found(kind, check, words):
    with pytest.raises(Finding, match=words):
        CHECKS[check](Subject(kind(), "mine"))


@pytest.mark.parametrize("name", RULES)
def test_both_learn_separable_classes(name):
    subject = Subject(load_method(name), name)
    trained = subject.trained(epochs=6)
    assert accuracy_of(trained.learner.network, [subject.batch(60)]) > 0.6
    assert all(p.isfinite().all() for p in trained.learner.network.parameters())
