"""docs/recipes.md: every recipe runs as it is, and reports what a plain pass of torch gives."""

import re
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from networks import medians
from projects import ROOT
from stand_ins import stand_in

TEXT = (ROOT / "docs/recipes.md").read_text(encoding="utf-8")
PARTS = {part.partition("\n")[0]: part for part in TEXT.split("\n## ")[1:]}
RECIPES = [name for name, part in PARTS.items() if "```python" in part]
SHARED, *_ = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
LINES = 15  # of code in a block
EXACT = 1e-6  # relative, of numbers in float64


@cache
def ran(name):
    """Run the recipe whose title has a word; return its names, with its model in evaluation mode."""
    (title,) = [each for each in RECIPES if name in each]
    blocks = re.findall(r"```python\n(.*?)```", PARTS[title], re.DOTALL)
    assert all(sum(map(bool, block.splitlines())) <= LINES for block in blocks)
    scope = {}
    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch)
        exec(SHARED + "\n".join(blocks), scope)
    scope["model"].eval()
    return scope


# --- plain passes: the states, with a graph between them, and the outputs -------------------------


def chain(scope, x):
    model = scope["model"]
    states = [model.embed(x)]
    for layer in model.layers:
        states.append(layer(states[-1]))
    return states, model.head(states[-1])


def sweep(scope, s, forces=(0, 0, 0)):
    """The hidden states of an equilibrium network, each from its neighbours and a force on it."""
    layers, s = scope["model"].layers, [*s]
    for i, layer in enumerate(layers, 1):
        above = s[i + 1] @ layers[i][0].weight if i < 3 else 0
        s[i] = torch.tanh(
            F.linear(s[i - 1], layer[0].weight, layer[0].bias) + above + forces[i - 1]
        )
    return s


def relaxed(scope, x):
    """One sweep at the fixed point."""
    with torch.no_grad():
        s = chain(scope, x)[0]
        for _ in range(500):
            s = sweep(scope, s)
    states = sweep(scope, [s[0].requires_grad_(), *s[1:]])
    return states, scope["model"].head(states[-1])


def goodness(scope, x):
    model = scope["model"]
    inputs = [
        torch.cat([F.one_hot(torch.full((len(x),), label), 4).to(x), x[:, 4:]], dim=1)
        for label in range(4)
    ]
    states = [torch.stack([model.embed(part) for part in inputs], dim=1)]
    for layer in model.layers:
        states.append(layer(states[-1] / states[-1].norm(dim=2, keepdim=True)))
    return states, sum(h.square().mean(dim=2) for h in states[1:])


def fed(scope, x):
    first, second, last = (scope["fed"][i] for i in (0, 2, 4))
    one = torch.tanh(F.linear(x, first.weight, first.bias))
    two = torch.tanh(F.linear(one, second.weight, second.bias))
    return [one, two], F.linear(two, last.weight, last.bias)


def tokens(scope, ids):
    model = scope["model"].transformer
    states = [model.wte(ids) + model.wpe(torch.arange(ids.shape[1]))]
    for block in model.h:
        returned = block(states[-1])
        states.append(returned[0] if isinstance(returned, tuple) else returned)
    return states, model.ln_f(states[-1]) @ model.wte.weight.T


def pixels(scope, x):
    net = scope["model"].net
    stem = net.backbone
    states = [stem.maxpool(stem.relu(stem.bn1(stem.conv1(x))))]
    for stage in (stem.layer1, stem.layer2, stem.layer3, stem.layer4):
        states.append(stage(states[-1]))
    scores = net.classifier(states[-1])
    return states, F.interpolate(scores, size=x.shape[2:], mode="bilinear", align_corners=False)


def labelled(scope, x, y):
    net = scope["model"].net
    states = [net.embed(x) + net.code.weight[y]]
    for layer in net.layers:
        states.append(layer(states[-1]))
    return states, net.head(states[-1])


PLAIN = {"Equilibrium": relaxed, "Forward-forward": goodness, "BioTorch": fed, "language": tokens}
PLAIN |= {"Segmentation": pixels, "labels in the pass": labelled}
BATCHES = {"language": "tokens", "Segmentation": "pictures"}
OTHERS = [
    "PEPITA",
    "Predictive coding",
    "Difference target",
    "Local losses",
    "TinyDFA",
    "`detach()`",
]
QUICK = [*OTHERS, *(name for name in PLAIN if name != "Segmentation")]
EVERY = [*QUICK, pytest.param("Segmentation", marks=pytest.mark.slow)]


def truth(name):
    """The names of a recipe, its first batch, and the states, outputs and gradients of the plain
    pass on it.
    """
    scope = ran(name)
    x, y = scope[BATCHES.get(name, "batches")][0]
    states, outputs = PLAIN.get(name, chain)(
        scope, x, *([y] if name == "labels in the pass" else [])
    )
    loss = scope["next_token"](outputs, y) if name == "language" else F.cross_entropy(outputs, y)
    return scope, x, y, states, torch.autograd.grad(loss, states)


def test_every_recipe_is_compared():
    found = [title for title in RECIPES if not any(name in title for name in [*OTHERS, *PLAIN])]
    assert not found and len(RECIPES) == len(OTHERS) + len(PLAIN)


@pytest.mark.parametrize("name", EVERY)
def test_a_recipe_reports_the_norms_of_states_and_gradients_of_a_plain_pass(name):
    scope, _, _, states, gradients = truth(name)
    report = scope["report"]
    assert report.residual_norms == pytest.approx(medians(states), rel=EXACT)
    assert report.bp_grad_norms == pytest.approx(medians(gradients), rel=EXACT)
    assert not report.untrue and not report.unchecked
    partial = name in ("Equilibrium", "Forward-forward")
    assert report.to_dict()["about"]["partial"] == partial and len(report.warnings) == partial


# --- credits: what the rule is, computed another way ----------------------------------------------


def pepita(scope, x, y, states):
    """The derivative of the states along the change of the input, by a small step."""
    model = scope["model"]
    change = (model(x).softmax(dim=-1) - F.one_hot(y, 4)) @ scope["projection"]
    return [h - other for h, other in zip(states[1:], model.states(x + EXACT * change)[1:])]


def implicit(scope, x, y, states):
    """The gradient by a force on every state, through the whole relaxation."""
    forces = [torch.zeros_like(h).requires_grad_() for h in states[1:]]
    s = [h.detach() for h in states]
    for _ in range(100):
        s = sweep(scope, s, forces)
    return torch.autograd.grad(F.cross_entropy(scope["model"].head(s[-1]), y), forces)


def backpropagated(scope, x, y, states):
    return [torch.zeros_like(h) for h in states[1:-1]] + [
        error_of(scope["model"].head, states[-1], y)
    ]


def through_inverses(scope, x, y, states):
    """What an inverse returns less for a target than for the state itself, from block to block."""
    found = [0.1 * error_of(scope["model"].head, states[-1], y)]
    for inverse, h in zip(scope["inverses"][::-1], states[:1:-1]):
        found.insert(0, inverse(h) - inverse(h - found[0]))
    return found


def error_of(head, h, y, feedback=None):
    return (head(h).softmax(dim=-1) - F.one_hot(y, 4)) @ (
        head.weight if feedback is None else feedback
    )


def local(scope, x, y, states):
    return [error_of(head, h, y) for head, h in zip(scope["heads"], states[1:])]


def own_goodness(scope, x, y, states):
    sign = 1 - 2 * F.one_hot(y, 4)
    return [
        (sign * (sign * (h.square().mean(dim=2) - 0.1)).sigmoid())[:, :, None] * h
        for h in states[1:]
    ]


def random_feedback(scope, x, y, states):
    head = scope["fed"][4]
    return [error_of(head, states[1], y, head.weight_backward)]


def sent(scope, x, y, states):
    """What the layers receive in a backward pass of the network as it is trained."""
    model, found = scope["model"], {}
    model.dfa.no_training = False
    for point in model.points:
        point.passthrough = False
    loss = F.cross_entropy(model(x), y)
    for index, point in enumerate(model.points):
        point.feedback_points.register_hook(lambda g, index=index: found.update({index: g}))
    loss.backward()
    model.dfa.no_training = True
    return [found[index] for index in range(len(found))]


RULES = {  # in place of which credits, and the least cosine with them
    "PEPITA": (pepita, 0.99),
    "Equilibrium": (implicit, 0.999),
    "Predictive coding": (backpropagated, 0.99),
    "Difference target": (through_inverses, 1 - EXACT),
    "Local losses": (local, 1 - EXACT),
    "Forward-forward": (own_goodness, 1 - EXACT),
    "BioTorch": (random_feedback, 1 - EXACT),
    "TinyDFA": (sent, 1 - EXACT),
}


def cosines(ones, others):
    return [
        F.cosine_similarity(a.flatten(1), b.flatten(1), eps=0).mean().item()
        for a, b in zip(ones, others)
    ]


@pytest.mark.parametrize("name", RULES)
def test_a_recipe_reports_the_cosines_of_its_credits_which_are_those_of_the_rule(name):
    scope, x, y, states, gradients = truth(name)
    credits = scope["credits"](scope["model"], x, y, [h.detach() for h in states])
    blocks = scope["report"].credit
    assert [block["cosine"].value for block in blocks] == pytest.approx(
        cosines(credits, gradients[1:]), abs=EXACT
    )
    assert all(block["rho_bp"].value > 0.999 and abs(block["rho"].value) <= 1 for block in blocks)
    rule, least = RULES[name]
    expected = rule(scope, x, y, [h.detach() for h in states])
    likeness = cosines(credits, expected)
    assert all(value >= least for value in likeness[-1 if rule is backpropagated else 0 :])
