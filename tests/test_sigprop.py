"""Signal propagation in float64: the closed form of its credits, and the authors' algorithm on a
plain network.
"""

import pytest
import torch
import torch.nn.functional as F
from networks import CLASSES, assert_same, batch_of, gradient_vector, rough_learner
from test_mono_forward import (
    SHAPE,
    STEPS,
    adam,
    assert_near,
    chain_learner,
    descend,
    flat,
    states_and_credits,
    stepped,
    weights_of,
)


def signal_of(learner):
    """Copies that learn of S and of the scale and shift of its normalisation."""
    project, norm = learner.state[0], learner.state[1]
    return [p.detach().clone().requires_grad_() for p in (project.weight, norm.weight, norm.bias)]


def projected(signal):
    """``t_0`` of every class, ``(C, n)``: the columns of S, normalised and rectified."""
    s, scale, shift = signal
    columns = s.T
    centred = columns - columns.mean(1, keepdim=True)
    return (centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt() * scale + shift).clamp(
        min=0
    )


def matched(h, t, labels):
    """The mean over images of the surprise at the label's state among those of all classes."""
    return torch.stack(
        [(t @ row).logsumexp(0) - t[y] @ row for row, y in zip(h, labels.tolist())]
    ).mean()


def test_three_steps_are_those_of_the_authors_algorithm_on_a_plain_network():
    learner = chain_learner("sigprop")
    before, signal_before = weights_of(learner), [p.detach() for p in signal_of(learner)]
    (first, *layers, head), signal = weights_of(learner), signal_of(learner)
    of_first, of_head, optimisers = (
        adam([*first, *signal]),
        adam(head),
        [adam(layer) for layer in layers],
    )
    batches = [batch_of(SHAPE, 7, seed) for seed in range(STEPS)]
    for x, labels in batches:
        h, t = (x.reshape(len(x), -1) @ first[0].T + first[1]).clamp(min=0), projected(signal)
        descend(of_first, matched(h, t, labels))
        for (w, b), optimiser in zip(layers, optimisers, strict=True):
            h, t = (
                (each.detach() @ w.T + b).clamp(min=0) for each in (h, t)
            )  # from weights before the update
            descend(optimiser, matched(h, t, labels))
        descend(of_head, F.cross_entropy(h.detach() @ head[0].T + head[1], labels))
    assert_near(flat(stepped(learner, batches)), flat([first, *layers, head]), flat(before))
    assert_near(signal_of(learner), signal, signal_before)


@pytest.mark.parametrize("architecture", ["resmlp", "vit_mini", "small_resnet", "bn_cnn"])
def test_credits_are_errors_times_the_states_of_labels(architecture):
    learner, (x, labels) = rough_learner(architecture, "sigprop"), batch_of()
    learner.network.eval()
    states, credits = states_and_credits(learner, (x, labels))
    t = projected(signal_of(learner)).reshape(CLASSES, *states[0].shape[1:])
    for layer, (h, a) in enumerate(zip(states, credits, strict=True)):
        positions = {2: lambda h: 1, 3: lambda h: h.shape[1], 4: lambda h: h[0, 0].numel()}[
            h.dim()
        ](h)
        products = torch.stack([(h * target).flatten(1).sum(1) / positions for target in t], dim=1)
        error = products.softmax(1) - F.one_hot(labels, CLASSES)
        assert_same(a, (error @ gradient_vector(t) / positions).detach())
        if layer < len(learner.network.blocks):
            t = learner.network.split(layer, t)[1]
