"""Small networks of every architecture and their learners, and forward passes written out by hand,
apart from the library's.

`training` says how BatchNorm normalises: by the batch, or by its running statistics. Shapes as in
the library.
"""

import math
from dataclasses import replace

import torch
import torch.nn.functional as F

from fa_audit.experiments.spec import RunSpec
from fa_audit.networks import architecture_options
from fa_audit.training.learner import build, learn

SHAPE, CLASSES = (3, 6, 10), 3  # sides, width and batch differ: a mean over the wrong one shows
SHAPES = [(1, 3, 2), (3, 8, 8), (2, 5, 7), (3, 32, 32)]


def spec_of(architecture, method="bp", **given):
    """A specification of one short epoch; `given` are fields of it and options of the architecture."""
    options = architecture_options(architecture) | {"width": 8, "depth": 2}
    options |= {name: given.pop(name) for name in options.keys() & given.keys()}
    values = {
        "architecture_options": tuple(sorted(options.items())),
        "epochs": 1,
        "batch_size": 16,
        "seed": 3,
    }
    return RunSpec(dataset="tiny", architecture=architecture, method=method, **values | given)


@torch.no_grad()
def rough_learner(architecture, method="bp", shape=SHAPE, **options):
    """A learner in float64, far from initialisation: no scale is 1, no shift and no running mean is
    0.
    """
    learner, randomness = (
        build(spec_of(architecture, method, **options), shape, CLASSES),
        torch.Generator(),
    )
    randomness.manual_seed(6)
    for parameter in learner.network.double().parameters():
        parameter.add_(0.2 * torch.randn(parameter.shape, generator=randomness))
    for name, buffer in learner.network.named_buffers():
        if name.endswith("running_mean"):
            buffer.copy_(torch.randn(buffer.shape, generator=randomness))
        if name.endswith("running_var"):
            buffer.copy_(0.5 + torch.rand(buffer.shape, generator=randomness))
    learner.state.double()
    return learner


def learner_of(method, architecture="resmlp", *, constants=None, **options):
    """A learner in float64 and evaluation mode, far from its initialisation."""
    learner = rough_learner(architecture, method, **{"depth": 3} | options)
    learner.network.eval()
    return replace(learner, method=constants or learner.method)


def credits_of(learner, x, labels):
    """The credits of a batch, with their objective."""
    return learner.method.credits(learner.network, learner.trace(x), labels, learner.state)


def listed_credits(learner, x, labels):
    """The credits of embedding and blocks, bottom to top."""
    return [*credits_of(learner, x, labels).by_name().values()]


def take_steps(learner, batches, randomness=None):
    """Train a learner by one step of the engine for every batch, and return it."""
    optimiser, randomness = learner.optimiser(), randomness or torch.Generator()
    for x, labels in batches:
        optimiser.zero_grad()
        learn(learner, x, labels, randomness)
        optimiser.step()
    return learner


def batch_of(shape=SHAPE, count=5, seed=1):
    randomness = torch.Generator().manual_seed(seed)
    x = torch.randn(count, *shape, dtype=torch.float64, generator=randomness)
    return x, torch.randint(CLASSES, (count,), generator=randomness)


def states_and_gradients(model, x, labels, loss_fn=F.cross_entropy):
    """The states of a network of the reference contract, and the gradients by them, by autograd."""
    logits, states = model(x, return_hidden=True)
    return states, torch.autograd.grad(loss_fn(logits, labels), states)


def medians(tensors):
    """The median norm over samples of every tensor."""
    return [t.detach().flatten(1).norm(dim=1).median().item() for t in tensors]


def assert_same_bits(found, expected):
    """The same names, and under each the same bits."""
    assert found.keys() == expected.keys()
    assert [name for name in found if not torch.equal(found[name], expected[name])] == []


def assert_same(found, expected, what=""):
    """Equal to 1e-10 of the expected norm, which must not be zero."""
    assert found.shape == expected.shape, what
    assert (found - expected).norm() <= 1e-10 * expected.norm() and expected.norm() > 0, what


def snapshot(model):
    """Everything that an audit could leave on a model, and the global random stream, in a form that
    compares.
    """
    modules = {
        name: (
            m.training,
            sorted(vars(m)),
            [len(value) for key, value in vars(m).items() if "hooks" in key and value],
        )
        for name, m in model.named_modules()
    }
    parameters = {
        name: (p.requires_grad, None if p.grad is None else p.grad.tolist())
        for name, p in model.named_parameters()
    }
    tensors = {name: value.tolist() for name, value in model.state_dict().items()}
    return tensors, parameters, modules, torch.get_rng_state().tolist()


MY_METHOD = """
from dataclasses import dataclass, replace
from fa_audit.methods.dfa import DFA


@dataclass(frozen=True)
class Mine(DFA):
    scale: float = 2.0

    def credits(self, network, trace, labels, state):
        found = super().credits(network, trace, labels, state)
        blocks = tuple(self.scale * a for a in found.blocks)
        return replace(found, blocks=blocks, embedding=self.scale * found.embedding)
"""  # in a file beside the user


def vector(h):
    """State to ``(B, d)``: itself, the cls token, the mean over positions."""
    return {2: lambda: h, 3: lambda: h[:, 0], 4: lambda: h.flatten(2).sum(dim=2) / h[0, 0].numel()}[
        h.dim()
    ]()


def gradient_vector(g):
    """The gradient by `vector`: a spatial mean moves by delta when every position does."""
    return {2: lambda: g, 3: lambda: g[:, 0], 4: lambda: torch.einsum("bdij->bd", g)}[g.dim()]()


def local_loss(f, r):
    """``mean <f, r>`` over samples and tokens or positions, ``r (B, d)``."""
    return torch.einsum({2: "bd,bd->b", 3: "btd,bd->bt", 4: "bdij,bd->bij"}[f.dim()], f, r).mean()


def energy(f):
    """``mean ||f||^2`` over samples and tokens or positions."""
    return (f**2).sum(dim=1 if f.dim() == 4 else -1).mean()


def linear(layer, h):
    return torch.einsum("...i,oi->...o", h, layer.weight) + layer.bias


def layer_norm(norm, h):
    return F.layer_norm(h, h.shape[-1:], norm.weight, norm.bias)


def conv_norm(conv, norm, h, training):
    h, statistics = (
        F.conv2d(h, conv.weight, padding=1),
        (norm.running_mean.clone(), norm.running_var.clone()),
    )
    return F.batch_norm(h, *statistics, norm.weight, norm.bias, training)


def stage(layers, h, training):
    h = F.relu(conv_norm(layers[0], layers[1], h, training))
    return F.max_pool2d(h, 2) if min(h.shape[-2:]) >= 4 else h


def attention(layers, h):
    """Four heads, one after the other."""
    q, k, v = linear(layers.query_key_value, h).chunk(3, dim=-1)
    heads = []
    for q_head, k_head, v_head in zip(*(t.chunk(4, dim=-1) for t in (q, k, v)), strict=True):
        scores = torch.einsum("bsf,btf->bst", q_head, k_head) / math.sqrt(q_head.shape[-1])
        shares = scores.exp() / scores.exp().sum(dim=-1, keepdim=True)
        heads.append(torch.einsum("bst,btf->bsf", shares, v_head))
    return linear(layers.out, torch.cat(heads, dim=-1))


def embed_by_hand(name, network, x, training):
    """``h_0``."""
    part = network.embed
    if name == "vit_mini":
        rows, columns = (-(-side // 4) for side in x.shape[-2:])
        padded = x.new_zeros(*x.shape[:2], 4 * rows, 4 * columns)
        padded[:, :, : x.shape[2], : x.shape[3]] = x
        patches = padded.view(*x.shape[:2], rows, 4, columns, 4)
        tokens = torch.einsum("bcripj,dcij->brpd", patches, part.project.weight) + part.project.bias
        return (
            torch.cat([part.cls.repeat(len(x), 1, 1), tokens.flatten(1, 2)], dim=1) + part.position
        )
    if name == "small_resnet":
        return F.relu(conv_norm(part[0], part[1], x, training))
    if name == "mlp":
        return F.relu(linear(part.linear, x.flatten(1)))
    return stage(part, x, training) if name == "bn_cnn" else linear(part[1], x.flatten(1))


def block_by_hand(name, network, layer, h, training):
    """``f_l`` and ``h_{l+1}``."""
    block = network.blocks[layer]
    if name == "vit_mini":
        u = h + attention(block.attention, layer_norm(block.attention_norm, h))
        f = (
            u
            - h
            + linear(block.mlp[2], F.gelu(linear(block.mlp[0], layer_norm(block.mlp_norm, u))))
        )
        return f, h + f
    if name == "small_resnet":
        conv1, norm1, _, conv2, norm2 = block.residual
        following = F.relu(
            h + conv_norm(conv2, norm2, F.relu(conv_norm(conv1, norm1, h, training)), training)
        )
        return following - h, following
    if name == "bn_cnn":
        last = layer == len(network.blocks) - 1
        following = F.relu(linear(block[1], h.flatten(1))) if last else stage(block, h, training)
        return following, following
    if name == "mlp":
        following = F.relu(linear(block.linear, h))
        return following, following
    f = linear(block.outer, F.gelu(linear(block.inner, layer_norm(block.norm, h))))
    return f, h + f if network.skip == "outside" else f


def head_by_hand(name, network, h):
    """Logits."""
    h = vector(h)
    if hasattr(network.head, "norm"):
        h = layer_norm(network.head.norm, h)
    return linear(network.head.linear, h)


def by_hand(name, network, x, training, frozen=0):
    """Logits and states of one pass; the first `frozen` blocks normalise by running statistics."""
    states = [embed_by_hand(name, network, x, training)]
    for layer in range(len(network.blocks)):
        states.append(
            block_by_hand(name, network, layer, states[-1], training and layer >= frozen)[1]
        )
    return head_by_hand(name, network, states[-1]), states
