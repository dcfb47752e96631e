"""Training steps never wait for the host: nothing is read, moved or drawn there."""

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
# These have no form on the meta device.
FUSED = (torch.ops.aten._fused_adamw_.tensor_lr, torch.ops.aten._fused_sgd_.tensor_lr)


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


@pytest.mark.parametrize(("architecture", "method", "more"), OPTIONS)
def test_a_step_reads_moves_and_draws_nothing_on_the_host(dataset, architecture, method, more):
    dataset, noise = dataset.to("meta"), torch.Generator()
    spec = replace(spec_of(architecture, method), **more)
    learner = build(spec, dataset.image_shape, dataset.classes).to("meta")
    learner.train_mode()
    learner.method.begin_epoch(learner.state, 0.5)
    optimiser = learner.optimiser()
    padded = pad(dataset.train_images, dataset.padding)
    batches = training_batches(dataset, padded, 10, torch.Generator())
    next(batches)  # moves the epoch's draws, once
    with OnMeta(), DrawnOnMeta(noise):
        optimiser.zero_grad()
        loss, *_ = learn(learner, *next(batches), noise)
        optimiser.step()
    assert loss.is_meta
