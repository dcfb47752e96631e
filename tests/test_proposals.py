"""Descriptions are proposed that fit, and the first error about a model names the one to pass."""

import pytest
import torch
import torch.nn.functional as F
import yaml
from torch import nn
from torchvision import models as zoo

from fa_audit import Description, diagnose
from fa_audit.core.errors import AuditError
from fa_audit.networks.description import describe
from fa_audit.networks.proposals import propose
from fa_audit.networks.trace import reference

LABELS = torch.tensor([1, 0, 2])


class CausalBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(8), nn.Sequential(nn.Linear(8, 9), nn.GELU(), nn.Linear(9, 8))

    def forward(self, h):
        attended = h + F.scaled_dot_product_attention(h, h, h, is_causal=True)
        return attended + self.mix(self.norm(attended))


class TinyGPT(nn.Module):
    """Tokens to the logits of the next one."""

    def __init__(self):
        super().__init__()
        self.embed, self.h = nn.Embedding(5, 8), nn.ModuleList(CausalBlock() for _ in range(3))
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 5)

    def forward(self, tokens):
        h = self.embed(tokens)
        for block in self.h:
            h = block(h)
        return self.head(self.norm(h)[:, -1])


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))


def swin():
    options = {"patch_size": [4, 4], "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 2], "window_size": [4, 4]}
    return zoo.SwinTransformer(**options, num_classes=4)


def vit():
    return zoo.VisionTransformer(32, patch_size=16, num_layers=3, num_heads=2, hidden_dim=8, mlp_dim=12, num_classes=4)


FITTING = {
    "mlp": (mlp, ("1", "3"), "all features"),
    "gpt": (TinyGPT, "h.*", "last token"),
    "resnet18": (zoo.resnet18, "layer*.*", "spatial mean"),
    "vit": (vit, "encoder.layers.*", "cls token"),
    "swin": (swin, ("features.1.*", "features.3.*"), "spatial mean, channels last"),
    "densenet": (lambda: zoo.DenseNet(8, (4, 4), 8), "features.denseblock*", "spatial mean"),
    "mobilenet_v3_small": (zoo.mobilenet_v3_small, tuple(f"features.{i}" for i in range(1, 12)), "spatial mean"),
}


@pytest.mark.parametrize("name", FITTING)
def test_the_first_proposal_is_what_an_expert_would_write_and_nothing_stays_attached(name):
    make, *expected = FITTING[name]
    model, x = make(), torch.randint(5, (3, 6)) if name == "gpt" else torch.rand(3, 3, 32, 32)
    best = propose(model, x)[0]
    assert best.description == Description(*expected)
    assert not any(m._forward_hooks or m._forward_pre_hooks or not m.training for m in model.modules())
    assert best.blocks_count == len(describe(model, best.description, x).names)
    pasted = yaml.safe_load(str(best).partition("\n\n")[2])
    assert Description(tuple(p) if isinstance(p := pasted["blocks"], list) else p, pasted["reads"]) == best.description


def test_the_last_token_is_the_vector_and_its_gradient_the_gradient():
    model, tokens = TinyGPT().double(), torch.randint(5, (3, 6))
    found = reference(describe(model, Description("h.*", "last token"), tokens), tokens, LABELS)
    h = model.h[1](model.h[0](model.embed(tokens)).detach().requires_grad_())
    g = torch.autograd.grad(F.cross_entropy(model.head(model.norm(model.h[2](h))[:, -1]), LABELS), h)[0]
    torch.testing.assert_close((found.states[2], found.gradients[2]), (h[:, -1].detach(), g[:, -1]))


def test_the_error_about_a_model_without_the_contract_can_be_pasted():
    model, batches = mlp(), [(torch.rand(3, 3, 32, 32), LABELS)]
    with pytest.raises(AuditError, match="found children: 0, 1") as caught:
        diagnose(model, batches, 0.5)
    argument = str(caught.value).partition("pass ")[2].partition(", which fits")[0]
    assert len(eval(f"diagnose(model, batches, 0.5, {argument})", globals() | locals()).residual_norms) == 3
