"""PEPITA and forward-forward against plain torch in float64, and broken variants that the
conformance suite finds.
"""

import copy
import math
import re
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from networks import assert_same, block_by_hand, head_by_hand
from projects import ROOT
from torch import nn

from fa_audit.data.dataset import evaluation_batches, load_dataset, save_dataset
from fa_audit.methods import forward_forward
from fa_audit.methods.dfa import DFA
from fa_audit.methods.dtp import DTP
from fa_audit.methods.ep import EP
from fa_audit.methods.forward_forward import ForwardForward
from fa_audit.methods.kolen_pollack import KolenPollack
from fa_audit.methods.layerwise import Layerwise
from fa_audit.methods.pepita import PEPITA
from fa_audit.methods.transport import block_weights
from fa_audit.methods.weight_mirror import WeightMirror
from fa_audit.networks.trace import trace
from fa_audit.testing import CHECKS
from fa_audit.testing.findings import Finding
from fa_audit.testing.subject import Subject
from fa_audit.training.checkpoint import load_checkpoint, save_checkpoint
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
    return learner.method.credits(
        learner.network, trace(learner.network, x, local=True), labels, learner.state
    )


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


def pepita_by_hand(learner, x, labels):
    """Both passes of PEPITA: states of the first, states and outputs of the second."""
    first, _ = states(learner.network, x)
    p = head_by_hand("resmlp", learner.network, first[-1]).softmax(1).detach()
    e = p - torch.eye(CLASSES, dtype=p.dtype)[labels]
    moves = [
        (image.max() - image.min()) * learner.state.F @ error
        for image, error in zip(x, e, strict=True)
    ]
    return first, *states(learner.network, x + torch.stack(moves).view(x.shape))


def pepita_loss(learner, x, labels):
    first, second, outputs = pepita_by_hand(learner, x, labels)
    terms = [
        (f * (h - other).detach()).sum(1)
        for f, h, other in zip(outputs, first, second, strict=True)
    ]
    return sum(terms).mean()


def test_pepitas_credits_are_first_pass_minus_second_pass(make_learner, batch):
    learner = make_learner("pepita")
    first, second, _ = pepita_by_hand(learner, *batch)
    for found, h, other in zip(listed(credits_of(learner, *batch)), first, second, strict=True):
        assert_same(found, (h - other).detach())


def test_pepitas_feedback_is_uniform_with_the_papers_limits(make_spec):
    feedback = build(make_spec("pepita"), (3, 32, 32), CLASSES).state.F
    limit = 0.05 * math.sqrt(6 / 3072)
    assert feedback.shape == (3072, CLASSES) and 0.99 * limit < feedback.abs().max() <= limit
    assert feedback.mean().abs() < 0.05 * limit and feedback.std() == pytest.approx(
        limit / math.sqrt(3), rel=0.02
    )


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
    """States of the labelled images, with the given labels and with the wrong ones that ``r``
    draws, one by one.
    """
    wrong = []
    for image, y in zip(x.flatten(1), labels.tolist(), strict=True):
        others = [(y + step) % CLASSES for step in range(1, CLASSES)]
        wrong.append(others[math.floor(torch.dot(image, learner.state.r)) % len(others)])
    images = [labelled(x, labels), labelled(x, torch.tensor(wrong))]
    return [states(learner.network, image, of_unit_length)[0] for image in images]


def goodness(h):
    """How far the sum of squares is above one per value."""
    return h.square().sum(1) - h.shape[1]


def forward_forward_loss(learner, x, labels):
    positive, negative = forward_forward_by_hand(learner, x, labels)
    signed = [-goodness(h) for h in positive] + [goodness(h) for h in negative]
    return sum((1 + g.exp()).log().mean() for g in signed) / 2


def test_forward_forwards_credits_are_the_mean_gradients_of_both_losses(make_learner, batch):
    learner = make_learner("forward_forward")
    passes = forward_forward_by_hand(learner, *batch)
    for found, positive, negative in zip(listed(credits_of(learner, *batch)), *passes, strict=True):
        up, down = (
            h * torch.sigmoid(-s * goodness(h))[:, None] for h, s in ((positive, 1), (negative, -1))
        )
        assert (found - (down - up)).norm() < 1e-6 * found.norm()  # 1e-8 beside the rms


def test_wrong_labels_are_uniform_over_draws_and_those_of_two_images_independent(
    make_spec, monkeypatch
):
    learner, randomness, drawn = (
        build(make_spec("forward_forward"), SHAPE, 4),
        torch.Generator().manual_seed(4),
        [],
    )
    x, labels = torch.randn(2, *SHAPE, generator=randomness), torch.tensor([2, 2])
    monkeypatch.setattr(
        forward_forward, "one_hot", lambda y, logits: drawn.append(y) or F.one_hot(y, 4).to(logits)
    )
    run, count = learner.trace(x), 3000
    for _ in range(count):
        learner.method.update_state(learner.network, learner.state, randomness)
        learner.method.credits(learner.network, run, labels, learner.state)
    pairs = torch.zeros(4, 4)
    for one, other in drawn[1::2]:
        pairs[one, other] += 1
    assert (
        all(torch.equal(y, labels) for y in drawn[::2])
        and not pairs[2].any()
        and not pairs[:, 2].any()
    )
    rest = pairs[[0, 1, 3]][:, [0, 1, 3]] / count
    assert (rest - 1 / 9).abs().max() < 4 * math.sqrt(1 / 9 / count)


def test_wrong_labels_are_drawn_anew_for_every_minibatch_and_by_nothing_else(make_learner, batch):
    learner, (x, labels) = make_learner("forward_forward"), batch
    drawn = learner.state.r.clone()
    first, again = (credits_of(learner, x, labels).objective.item() for _ in range(2))
    assert first == again and torch.equal(learner.state.r, drawn)
    learn(learner, x, labels, torch.Generator().manual_seed(8))
    other = torch.empty_like(drawn).normal_(std=CLASSES, generator=torch.Generator().manual_seed(8))
    assert torch.equal(learner.state.r, other) and not torch.equal(other, drawn)


def labels_by_hand(learner, x, first):
    """The label with most goodness, summed over the states from `first` on."""
    found = []
    for image in x:
        sums = []
        for c in range(CLASSES):
            hidden, _ = states(
                learner.network, labelled(image[None], torch.tensor([c])), of_unit_length
            )
            sums.append(sum(h.square().sum().item() for h in hidden[first:]))
        found.append(sums.index(max(sums)))
    return found


def test_classify_returns_the_label_with_most_goodness_in_all_layers_but_the_first(make_learner):
    learner, x = make_learner("forward_forward"), torch.randn(40, *SHAPE, dtype=torch.float64)
    with torch.no_grad():
        learner.network.embed[1].weight.mul_(3)
    found = forward_forward.classify(learner.network, x, CLASSES).tolist()
    assert found == labels_by_hand(learner, x, 1) and found != labels_by_hand(learner, x, 0)
    assert len(set(found)) == CLASSES


def test_the_documents_code_prints_the_accuracy_by_goodness(
    make_spec, dataset, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    learner, (x, labels) = (
        build(make_spec("forward_forward"), (1, 8, 8), CLASSES),
        *evaluation_batches(dataset),
    )
    save_checkpoint(learner, "my/forward_forward.safetensors")
    save_dataset(dataset, "my/cifar10.safetensors")
    given = {"torch": torch, "load_checkpoint": load_checkpoint, "load_dataset": load_dataset}
    given |= {"classify": forward_forward.classify, "evaluation_batches": evaluation_batches}
    exec(
        re.search(r"```python\n(learner.*?)```", (ROOT / "docs/methods.md").read_text(), re.DOTALL)[
            1
        ],
        given,
    )
    right = forward_forward.classify(learner.network, x, CLASSES) == labels
    assert capsys.readouterr().out == f"goodness_accuracy {right.double().mean().item()}\n"


@pytest.mark.parametrize("name", RULES)
def test_three_steps_are_those_of_plain_torch(make_learner, batch, name):
    learner, (x, labels) = make_learner(name, lr=1e-2, weight_decay=0.1), batch
    other = replace(learner, network=copy.deepcopy(learner.network))
    plain = torch.optim.AdamW(other.network.parameters(), lr=1e-2, weight_decay=0.1)
    optimiser, randomness = learner.optimiser(), torch.Generator().manual_seed(2)
    loss = {"pepita": pepita_loss, "forward_forward": forward_forward_loss}[name]
    for step in range(3):
        images = x + step
        hidden, _ = states(other.network, images)
        head = F.cross_entropy(head_by_hand("resmlp", other.network, hidden[-1].detach()), labels)
        plain.zero_grad()
        (head + loss(other, images, labels)).backward()
        plain.step()
        optimiser.zero_grad()
        learn(learner, images, labels, randomness)
        optimiser.step()
    for found, expected in zip(
        learner.network.parameters(), other.network.parameters(), strict=True
    ):
        assert (found - expected).norm() <= 1e-6 * expected.norm()


def test_goodness_of_tokens_and_of_positions_is_the_mean_of_theirs():
    h = torch.randn(5, 6, 3, dtype=torch.float64)
    expected = torch.stack([goodness(token) for token in h.unbind(1)]).mean(0)
    assert_same(forward_forward.goodness(h), expected)
    assert_same(forward_forward.goodness(h.permute(0, 2, 1).reshape(5, 3, 2, 3)), expected)


class Equal(ForwardForward):
    """Its negatives are its positives, and its goodness a mean, whose loss has no narrow valley at
    the threshold.
    """

    def credits(self, network, trace, labels, state):
        own = super().credits(network, trace, labels, state)
        images = forward_forward.overlaid(
            trace.x, F.one_hot(labels, network.classes).to(trace.logits)
        )
        goodness = [
            forward_forward.goodness(h) / network.width
            for h in forward_forward.states_of(network, images)
        ]
        return replace(
            own, objective=sum(F.softplus(g) + F.softplus(-g) for g in goodness).mean() / 2
        )


def declaring(kind, **flags):
    return type(kind.__name__, (kind,), flags)


def opposed(kind, *, objective=1, **flags):
    """A rule that reports its credits with the wrong sign, and descends `objective` times its own."""

    def credits(self, *given):
        own = kind.credits(self, *given)
        turned = [-own.embedding, *(-a for a in own.blocks)]
        return replace(
            own, embedding=turned[0], blocks=tuple(turned[1:]), objective=objective * own.objective
        )

    return declaring(kind, credits=credits, **flags)


def upside_down(kind, block):
    """A rule with the wrong sign in one block, and the right one at the top."""

    def credits(self, *given):
        own = kind.credits(self, *given)
        return replace(own, blocks=tuple(-a if i == block else a for i, a in enumerate(own.blocks)))

    return declaring(kind, credits=credits)


def silent(kind):
    """A rule that declares a loss of its own and returns none."""
    return declaring(
        kind, credits=lambda self, *given: replace(kind.credits(self, *given), objective=None)
    )


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


BROKEN = {
    "labels": [Uncorrected],
    "moves": [Unmirrored, Untaught, declaring(Unlearning, feedback="learned B")],
    "stages": [GoingOn, Penalised],
    "downhill": [Equal],
    "sizes": [declaring(ForwardForward, own_objective=False)],
    "traits": [declaring(PEPITA, own_objective=True), declaring(PEPITA, across_samples=True)],
    "trains": [opposed(ForwardForward), opposed(EP, own_objective=True)],
    "direction": [opposed(PEPITA, objective=-1, own_objective=True), upside_down(DFA, 0)],
    "shapes": [silent(ForwardForward)],
}


def test_what_carries_no_credit_is_no_learned_feedback():
    CHECKS["moves"](Subject(declaring(Averaging, feedback="learned B")(), "mine"))


@pytest.mark.parametrize(
    ("check", "kind"), [(check, kind) for check, kinds in BROKEN.items() for kind in kinds]
)
def test_a_broken_rule_is_found(check, kind):
    with pytest.raises(Finding):
        CHECKS[check](Subject(kind(), "mine"))
