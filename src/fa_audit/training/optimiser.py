"""torch's AdamW without torch's compiler, which takes a process 1 to 2 s to import."""

from __future__ import annotations

from inspect import unwrap

import torch
from torch.optim import Optimizer


class AdamW(torch.optim.AdamW):
    """The same steps, bit for bit, for training that is never compiled.

    Around these methods torch imports its compiler, to keep it away from them. Here they are what they are inside.
    """

    add_param_group = unwrap(Optimizer.add_param_group)
    zero_grad = unwrap(Optimizer.zero_grad)
    state_dict = unwrap(Optimizer.state_dict)
    load_state_dict = unwrap(Optimizer.load_state_dict)
    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))
