"""Training rules a second time, in plain torch, apart from the library's: what each of them reports
and descends.

A rule is a function of an architecture's name, a learner, a batch and a random stream. It returns
the credits of embedding and blocks ``(B, d)``, bottom to top, and the loss that embedding, blocks
and the learner's state descend, a mean over the batch. The head has a loss of its own.
"""

import math

import torch
import torch.nn.functional as F
from networks import (
    CLASSES,
    block_by_hand,
    embed_by_hand,
    gradient_vector,
    head_by_hand,
    linear,
    local_loss,
    vector,
)


def chain(name, network, x, prepare=lambda h: h):
    """The states of a pass, and what each part adds to its own input; no graph reaches two parts."""
    states = [embed_by_hand(name, network, x, False)]
    outputs = [states[0]]
    for layer in range(len(network.blocks)):
        f, h = block_by_hand(name, network, layer, prepare(states[-1].detach()), False)
        outputs.append(f)
        states.append(h)
    return states, outputs


def following(name, network, layer, h):
    return block_by_hand(name, network, layer, h, False)[1]


def pulled_back(name, network, layer, h, slope):
    """``J_l^T slope`` at `h`."""
    step = torch.autograd.functional.vjp(lambda s: following(name, network, layer, s), h, slope)
    return step[1]


def output_error(name, network, top, labels):
    p = head_by_hand(name, network, top.detach()).softmax(dim=1).detach()
    return p - F.one_hot(labels, CLASSES)


def loss_slope(name, network, top, labels):
    """The gradient of the per-sample loss at the last state."""
    top = top.detach().requires_grad_()
    loss = F.cross_entropy(head_by_hand(name, network, top), labels, reduction="sum")
    return torch.autograd.grad(loss, top)[0]


def root_mean_square(a):
    return a.square().mean(dim=1, keepdim=True).sqrt()


def taught(outputs, credits):
    """``sum <f, r(a)>``, where r divides by the root mean square."""
    scaled = [a / (root_mean_square(a) + 1e-6) for a in credits]
    return sum(local_loss(f, a) for f, a in zip(outputs, scaled, strict=True))


def slopes(loss, states, labels):
    """Credits of rules whose blocks descend a loss of their own: gradients of single samples'."""
    found = torch.autograd.grad(loss * len(labels), states, retain_graph=True)
    return [gradient_vector(g) for g in found]


def local(losses):
    """The rule in which every state has a loss ``losses(v, nets, labels)``, a mean."""

    def rule(name, learner, x, labels, randomness):
        states, _ = chain(name, learner.network, x)
        pairs = zip(states, learner.state, strict=True)
        loss = sum(losses(vector(h), nets, labels) for h, nets in pairs)
        return slopes(loss, states, labels), loss

    return rule


def prediction(v, nets, labels):
    return F.cross_entropy(linear(nets["pred"], v), labels)


def similarity(v, nets, labels):
    wanted = torch.corrcoef(F.one_hot(labels, CLASSES).double())
    found = torch.corrcoef(v @ nets["sim"].weight.T)
    return (found - wanted).square().mean()


def both(v, nets, labels):
    return 0.7 * prediction(v, nets, labels) + 0.3 * similarity(v, nets, labels)


def goodness(v, net, labels):
    g = (v * (v > 0)) @ net.weight.T  # clamp has another slope at 0 in older torch
    return (g.logsumexp(1) - g[torch.arange(len(v)), labels]).mean()


def signal_propagation(name, learner, x, labels, randomness):
    """Every image is told by the states of all labels."""
    states, _ = chain(name, learner.network, x)
    project, norm = learner.state[0], learner.state[1]
    columns = project.weight.T
    centred = columns - columns.mean(1, keepdim=True)
    deviation = (centred.square().mean(1, keepdim=True) + 1e-5).sqrt()
    t = (centred / deviation * norm.weight + norm.bias).relu()
    t = t.reshape(CLASSES, *states[0].shape[1:])
    loss = 0.0
    for layer, h in enumerate(states):
        if layer:
            t = following(name, learner.network, layer - 1, t.detach())
        places = {2: 1, 3: h.shape[1], 4: h[0, 0].numel()}[h.dim()]
        products = [(h * target).flatten(1).sum(1) / places for target in t]
        loss = loss + F.cross_entropy(torch.stack(products, dim=1), labels)
    return slopes(loss, states, labels), loss


def forward_gradient(name, learner, x, labels, randomness):
    states, _ = chain(name, learner.network, x)
    credits, loss = [], 0.0
    for h, nets in zip(states, learner.state, strict=True):
        v, net = vector(h), nets["pred"]
        # Angles of codes, folded to half a turn, are uniform in (0, 1).
        codes = x.flatten(1) @ learner.state.projections
        angles = 2 * math.pi * (codes @ nets.turns[:-1] + nets.turns[-1])
        n = torch.distributions.Normal(0.0, 1.0).icdf(torch.acos(torch.cos(angles)) / math.pi)

        def losses(v, net=net):
            return F.cross_entropy(linear(net, v), labels, reduction="none")

        along = torch.autograd.functional.jvp(losses, v.detach(), n)[1]
        credits.append(along[:, None] * n)
        loss = loss + (v * credits[-1]).sum(dim=1).mean() + losses(v.detach()).mean()
    return credits, loss


def direct_kolen_pollack(name, learner, x, labels, randomness):
    states, outputs = chain(name, learner.network, x)
    error = output_error(name, learner.network, states[-1], labels)
    credits = [torch.stack([b.detach() @ e for e in error]) for b in learner.state]
    loss = taught(outputs, credits)
    for h, b in zip(states, learner.state, strict=True):
        rows = zip(vector(h).detach(), error, strict=True)
        outer = torch.stack([torch.outer(v, e) for v, e in rows])
        loss = loss + (outer.mean(dim=0) * b).sum()
    return credits, loss


def pepita(name, learner, x, labels, randomness):
    """A second pass reads the input plus the projected error."""
    first, _ = chain(name, learner.network, x)
    error = output_error(name, learner.network, first[-1], labels)
    moved = []
    for image, e in zip(x, error, strict=True):
        shift = (image.max() - image.min()) * learner.state.F @ e
        moved.append(image + shift.view_as(image))
    second, outputs = chain(name, learner.network, torch.stack(moved))
    moves = [(h - other).detach() for h, other in zip(first, second, strict=True)]
    loss = sum((f * a).sum() for f, a in zip(outputs, moves, strict=True)) / len(x)
    return [gradient_vector(a) for a in moves], loss


def labelled(x, labels):
    """Images with a label over their first pixels, one by one."""
    images = x.clone()
    for image, label in zip(images.view(len(x), -1), labels.tolist(), strict=True):
        least, most = image.min().item(), image.max().item()
        for c in range(CLASSES):
            image[c] = most if c == label else least
    return images


def of_unit_size(h):
    # A state whose ReLUs are all off stays 0.
    size = h.flatten(1).square().mean(1).sqrt().clamp(min=1e-8)
    return h / size.view(-1, *[1] * (h.dim() - 1))


def squares(h):
    """The sum of squares over features, its mean over tokens or positions: ``(B,)``."""
    sums = (h**2).sum(dim=1 if h.dim() == 4 else -1)
    return sums.flatten(1).mean(1) if h.dim() > 2 else sums


def forward_forward(name, learner, x, labels, randomness):
    """Images with the right labels, and with the wrong ones that ``r`` draws."""
    wrong = []
    for image, y in zip(x.flatten(1), labels.tolist(), strict=True):
        others = [(y + step) % CLASSES for step in range(1, CLASSES)]
        wrong.append(others[math.floor(torch.dot(image, learner.state.r)) % len(others)])
    states, loss = [], 0.0
    for sign, given in ((-1, labels), (1, torch.tensor(wrong))):
        images = of_unit_size(labelled(x, given))
        hidden, _ = chain(name, learner.network, images, of_unit_size)
        for h in hidden:
            width = h.shape[-1 if h.dim() == 3 else 1]
            loss = loss + (1 + (sign * (squares(h) - width)).exp()).log().mean() / 2
        states.append(hidden)
    right, others = (slopes(loss, hidden, labels) for hidden in states)
    read = F.cross_entropy(neutral_outputs(name, learner, x), labels)
    return [a + b for a, b in zip(right, others, strict=True)], loss + read


def neutral_outputs(name, learner, x):
    """What the softmax layer makes of images with a neutral label."""
    images = x.clone()
    for image in images.view(len(x), -1):
        least, most = image.min().item(), image.max().item()
        image[:CLASSES] = least + (most - least) / CLASSES
    hidden, _ = chain(name, learner.network, of_unit_size(images), of_unit_size)
    read = [vector(of_unit_size(h)).detach() for h in hidden[1:]]
    return learner.state.softmax(torch.cat(read, dim=1))


def difference(learner, layer, v, at):
    """What an inverse makes of `v` less what it makes of `at`, with the skip of its block."""
    network, net = learner.network, learner.state[layer]
    skip = layer < len(network.blocks) and network.skip != "none"
    return net(v) - net(at) + (v - at if skip else 0)


def shifted(h, delta):
    """A state whose vector moves by `delta`."""
    if h.dim() == 3:
        return torch.cat([h[:, :1] + delta[:, None], h[:, 1:]], dim=1)
    return h + (delta[:, :, None, None] if h.dim() == 4 else delta)


def targets_down(learner, vectors, target):
    """Targets of all vectors but the last, whose own target is given."""
    targets = []
    for layer in reversed(range(len(vectors) - 1)):
        target = vectors[layer] + difference(learner, layer, target, vectors[layer + 1]).detach()
        targets.insert(0, target)
    return targets


def noise(learner, v, randomness):
    drawn = torch.randn(v.shape, generator=randomness).double()
    return learner.method.sigma * root_mean_square(v) * drawn


def target_propagation(name, learner, x, labels, randomness):
    network, eta = learner.network, learner.method.eta
    states, outputs = chain(name, network, x)
    v = [vector(h).detach() for h in states]
    top = v[-1] - eta * gradient_vector(loss_slope(name, network, states[-1], labels))
    targets = [*targets_down(learner, v, top), top]
    credits = [(h - target) / eta for h, target in zip(v, targets, strict=True)]
    loss = taught(outputs, credits)
    for layer, net in enumerate(learner.state):
        noisy = shifted(states[layer].detach(), noise(learner, v[layer], randomness))
        above = vector(following(name, network, layer, noisy)).detach()
        again = net(above) + (above if network.skip != "none" else 0)
        loss = loss + F.mse_loss(again, vector(noisy))
    return credits, loss


def difference_reconstruction(name, learner, x, labels, randomness):
    """Targets from the logits down; inverses learn to return noise up the whole path and back."""
    network, eta, depth = learner.network, learner.method.eta, len(learner.network.blocks)
    states, outputs = chain(name, network, x)
    logits = head_by_hand(name, network, states[-1]).detach()
    v = [*(vector(h).detach() for h in states), logits]
    top = logits - eta * output_error(name, network, states[-1], labels)
    targets = targets_down(learner, v, top)
    credits = [(h - target) / eta for h, target in zip(v, targets)]
    loss = taught(outputs, credits)
    for layer, net in enumerate(learner.state):
        n = noise(learner, v[layer], randomness)
        h = shifted(states[layer].detach(), n)
        for higher in range(layer, depth):
            h = following(name, network, higher, h)
        returned = head_by_hand(name, network, h).detach()
        for higher in reversed(range(layer + 1, depth + 1)):
            returned = v[higher] + difference(learner, higher, returned, v[higher + 1]).detach()
        miss = difference(learner, layer, returned, v[layer + 1]) - n
        loss = loss + miss.square().sum() / n.square().sum()
        loss = loss + learner.method.damping / 2 * sum(p.square().sum() for p in net.parameters())
    return credits, loss


def errors_of(name, network, embedded, states):
    """``h_0 - embed(x)`` and ``h_{l+1} - F_l(h_l)``."""
    errors = [states[0] - embedded]
    for layer, h in enumerate(states[:-1]):
        errors.append((states[layer + 1] - following(name, network, layer, h)).detach())
    return errors


def relaxed(name, learner, free, labels, beta):
    """States after steps down ``E + beta CE`` whose slopes are written out: ``e_l - J_l^T e_{l+1}``,
    at the top ``e_L + beta dCE/dh_L``.
    """
    network, states = learner.network, free
    for _ in range(learner.method.steps):
        found = errors_of(name, network, free[0], states)
        found[-1] = found[-1] + beta * loss_slope(name, network, states[-1], labels)
        for layer, h in enumerate(states[:-1]):
            above = states[layer + 1] - following(name, network, layer, h).detach()
            found[layer] = found[layer] - pulled_back(name, network, layer, h, above)
        states = [h - learner.method.alpha * e for h, e in zip(states, found, strict=True)]
    return states


def outputs_at(name, network, x, states):
    """What embedding and blocks make of the input and of given states."""
    outputs = [embed_by_hand(name, network, x, False)]
    for layer, h in enumerate(states[:-1]):
        outputs.append(following(name, network, layer, h))
    return outputs


def nudged(betas, of_errors):
    """Equilibrium propagation; with beta 1 and prediction errors as credits, predictive coding."""

    def rule(name, learner, x, labels, randomness):
        network = learner.network
        free = [h.detach() for h in chain(name, network, x)[0]]
        credits, loss = [0.0] * len(free), 0.0
        for beta in betas:
            states = relaxed(name, learner, free, labels, beta)
            errors = errors_of(name, network, free[0], states)
            predicted = outputs_at(name, network, x, states)
            for layer, (e, p) in enumerate(zip(errors, predicted, strict=True)):
                move = e if of_errors else states[layer] - free[layer]
                credits[layer] -= gradient_vector(move) / beta / len(betas)
                loss = loss - (e * p).sum() / beta / len(betas) / len(x)
        return credits, loss

    return rule


def dual_propagation(name, learner, x, labels, randomness):
    """Pairs of states, nudged both ways from the top, each layer's relaxed before the next's."""
    network, method = learner.network, learner.method
    free = [h.detach() for h in chain(name, network, x)[0]]
    d = -method.beta * loss_slope(name, network, free[-1], labels)
    differences, loss = [d], 0.0
    for layer in reversed(range(len(network.blocks))):
        plus = minus = free[layer]
        for _ in range(method.steps):
            up, down = (pulled_back(name, network, layer, s, d) for s in (plus, minus))
            plus, minus = free[layer] + (1 - method.alpha) * up, free[layer] - method.alpha * down
        up, down = (following(name, network, layer, s) for s in (plus, minus))
        loss = loss + (d * (method.alpha * up + (1 - method.alpha) * down)).sum()
        d = plus - minus
        differences.insert(0, d)
    loss = loss + (d * embed_by_hand(name, network, x, False)).sum()
    credits = [gradient_vector(d) / -method.beta for d in differences]
    return credits, loss / (-method.beta * len(x))


def bridge_net(module, h, t, error):
    """``[LN(h), t, s]``, three hidden layers of GELU units, a linear output."""
    centred = h - h.mean(dim=1, keepdim=True)
    z = centred / (centred.square().mean(dim=1, keepdim=True) + 1e-5).sqrt()
    a = torch.cat([z, torch.full((len(h), 1), t, dtype=h.dtype), error], dim=1)
    *hidden, last = [layer for layer in module.modules() if isinstance(layer, torch.nn.Linear)]
    for layer in hidden:
        u = linear(layer, a)
        a = u * (1 + torch.erf(u / 2**0.5)) / 2
    return linear(last, a)


def state_bridge(name, learner, x, labels, randomness):
    """A net predicts the last state at unit rms; the loss there has the credit."""
    network, depth = learner.network, len(learner.network.blocks)
    states, outputs = chain(name, network, x)
    error = output_error(name, network, states[-1], labels)
    last = vector(states[-1]).detach()
    credits, misses = [], []
    for layer in range(depth):
        h = vector(states[layer]).detach().requires_grad_()
        predicted = bridge_net(learner.state, h, layer / depth, error)
        loss = F.cross_entropy(head_by_hand(name, network, predicted), labels, reduction="sum")
        credits += torch.autograd.grad(loss, h, retain_graph=True)
        misses.append(predicted - last / root_mean_square(last))
    credits.insert(0, credits[0])
    return credits, taught(outputs, credits) + torch.stack(misses).square().mean()


def credit_bridge(name, learner, x, labels, randomness):
    """A net values states: soft minima of the next state's values, the loss at the top, its slope."""
    network, method, depth = learner.network, learner.method, len(learner.network.blocks)
    states, outputs = chain(name, network, x)
    error = output_error(name, network, states[-1], labels)
    vectors = [vector(h).detach().requires_grad_() for h in states]
    drawn = torch.randn(method.draws, depth, *vectors[0].shape, generator=randomness).double()
    targets, values, credits = [], [], []
    for layer, h in enumerate(vectors):
        values.append(bridge_net(learner.state.value, h, layer / depth, error)[:, 0])
        credits += torch.autograd.grad(values[-1].sum(), h, create_graph=True)
        if layer:
            noisy = h + method.sigma * root_mean_square(h) * drawn[:, layer - 1]
            near = [bridge_net(learner.state.average, n, layer / depth, error) for n in noisy]
            mean = (-torch.cat(near, dim=1) / method.tau).exp().mean(dim=1)
            targets.append(-method.tau * mean.log().detach())
    logits = head_by_hand(name, network, states[-1].detach())
    targets.append(F.cross_entropy(logits, labels, reduction="none").detach())
    truth = gradient_vector(loss_slope(name, network, states[-1], labels))
    miss = vectors[-1].detach().norm(dim=1, keepdim=True) * (credits[-1] - truth)
    loss = F.mse_loss(torch.stack(values), torch.stack(targets)) + miss.square().mean()
    credits = [a.detach() for a in (credits[0], *credits[:-1])]
    return credits, taught(outputs, credits) + loss
