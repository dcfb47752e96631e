"""Training steps never wait for the host: nothing is read, moved or drawn there, and a step can be
replayed.
"""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from networks import spec_of
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fa_audit.data.dataset import pad, training_batches
from fa_audit.methods import METHODS
from fa_audit.networks import ARCHITECTURES
from fa_audit.networks.network import Conv3x3
from fa_audit.training.learner import build, learn

OPTIONS = [  # (architecture, method, more of the specification)
    *(("resmlp", method, {}) for method in METHODS),
    *((architecture, "dfa", {}) for architecture in ARCHITECTURES if architecture != "resmlp"),
    ("bn_cnn", "ep", {}),
    ("small_resnet", "kolen_pollack", {}),
    ("vit_mini", "credit_bridge", {}),
    ("resmlp", "bp", {"penalty": 0.01, "frozen_blocks": 1}),
    ("resmlp", "kolen_pollack", {"optimiser": "sgd", "clip": 0.1, "normalise": False}),
    ("bn_cnn", "ep", {"clip": 0.1, "frozen_embedding": True, "frozen_blocks": 1}),
]
every_step = pytest.mark.parametrize(("architecture", "method", "more"), OPTIONS)
FUSED = (
    torch.ops.aten._fused_adamw_.tensor_lr,
    torch.ops.aten._fused_sgd_.tensor_lr,
)  # none on the meta device


def step(learner, optimiser, batch, noise):
    optimiser.zero_grad()
    loss = learn(learner, *batch, noise)[0]
    optimiser.step()
    return loss


def started(architecture, method, more, dataset):
    """A learner with its optimiser in the second half of its training, and its batches."""
    spec = replace(spec_of(architecture, method), **more)
    learner = build(spec, dataset.image_shape, dataset.classes).to(dataset.train_images.device)
    learner.train_mode()
    learner.method.begin_epoch(learner.state, 0.5)
    padded, stream = pad(dataset.train_images, dataset.padding), torch.Generator().manual_seed(2)
    batches = training_batches(dataset, padded, 10, stream)
    return learner, learner.optimiser(), batches


class DrawnOnMeta(TorchFunctionMode):
    """Let a generator of the host stand for one on the device, for code that draws where its
    generator is.
    """

    def __init__(self, noise):
        super().__init__()
        self.noise = noise

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if kwargs.get("generator") is self.noise and kwargs.get("device") == self.noise.device:
            kwargs = kwargs | {"device": "meta"}
        return function(*args, **kwargs)


class OnMeta(TorchDispatchMode):
    """Fail at a tensor of the host."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        returned = None if function in FUSED else function(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs, returned)):
            assert not isinstance(leaf, Tensor) or leaf.is_meta, f"{function} on the host"
        return returned


@every_step
def test_a_step_reads_moves_and_draws_nothing_on_the_host(dataset, architecture, method, more):
    learner, optimiser, batches = started(architecture, method, more, dataset.to("meta"))
    noise = torch.Generator()
    next(batches)  # moves the epoch's draws, once
    with OnMeta(), DrawnOnMeta(noise):
        assert step(learner, optimiser, next(batches), noise).is_meta


def test_maps_lie_channels_last_on_a_cpu_alone():
    for device in ("cpu", "meta"):
        maps = Conv3x3(2, 4).to(device)(torch.zeros(3, 2, 5, 5, device=device))
        assert maps.is_contiguous(memory_format=torch.channels_last) == (device == "cpu")


class Recorder(TorchDispatchMode):
    """Record every operation; `replay` runs them again on the same memory, as a captured CUDA graph
    does.
    """

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        returned = function(*args, **(kwargs or {}))
        assert not isinstance(returned, int | float | bool), f"{function} reads from the device"
        if not function.is_view:
            self.calls.append((function, args, kwargs or {}, returned))
        return returned

    @torch.no_grad()
    def replay(self):
        for function, args, kwargs, returned in self.calls:
            values = tree_leaves(function(*args, **kwargs))
            for place, value in zip(tree_leaves(returned), values, strict=True):
                if isinstance(place, Tensor) and place is not value:
                    place.copy_(value)


@every_step
def test_a_step_that_is_replayed_on_the_same_memory_has_the_bits_of_one_that_is_computed(
    dataset, architecture, method, more
):
    rates = [1e-2, 1e-2, 1e-2, 3e-3, 1e-3]
    states = []
    for replayed in (False, True):
        learner, optimiser, batches = started(architecture, method, more, dataset)
        noise, recorder, losses = torch.Generator().manual_seed(4), Recorder(), []
        held = [part.clone() for part in next(batches)]
        for index, (batch, rate) in enumerate(zip([held, *batches], rates, strict=True)):
            optimiser.set_lr(rate)
            for place, part in zip(held, batch, strict=True):
                place.copy_(part)
            if replayed and index > 2:
                recorder.replay()
            else:
                # The first steps make the optimiser's state.
                with recorder if replayed and index == 2 else nullcontext():
                    loss = step(learner, optimiser, held, noise)
            losses.append(loss.clone())
        states.append((losses, learner.network.state_dict(), learner.state.state_dict()))
    torch.testing.assert_close(states[0], states[1], rtol=0, atol=0)
