"""docs/recipes.md: every recipe runs as it is, and reports what another way of computing it gives."""

import re

import pytest
import torch
import torch.nn.functional as F
from projects import ROOT

TEXT = (ROOT / "docs/recipes.md").read_text(encoding="utf-8")
PARTS = {part.partition("\n")[0]: part for part in TEXT.split("\n## ")[1:]}
RECIPES = [name for name, part in PARTS.items() if "```python" in part]
SHARED, *_ = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def ran(name):
    """Run a recipe; return its names."""
    (code,) = re.findall(r"```python\n(.*?)```", PARTS[name], re.DOTALL)
    assert len(code.splitlines()) <= 30
    exec(SHARED + code, scope := {})
    return scope


def gradients(model, x, y):
    """The gradients of the summed loss at every state, with the graph of the model itself."""
    states = model.states(x)
    return torch.autograd.grad(F.cross_entropy(model.head(states[-1]), y, reduction="sum"), states)


@pytest.mark.parametrize("name", [name for name in RECIPES if "Forward-forward" not in name and "detach" not in name])
def test_a_recipe_reports_the_cosines_of_its_credits_with_the_gradients_at_the_outputs(name):
    scope = ran(name)
    (x, y), model = scope["batches"][0], scope["model"]
    credits = scope["credits"](model, x, y, [h.detach() for h in model.states(x)])
    expected = [F.cosine_similarity(a, g, eps=0).mean().item() for a, g in zip(credits, gradients(model, x, y)[1:])]
    blocks = scope["report"].credit
    assert [block["cosine"].value for block in blocks] == pytest.approx(expected, abs=1e-6)
    assert all(block["rho_bp"].value > 0.999 and abs(block["rho"].value) <= 1 for block in blocks)


def test_predictive_coding_gives_the_gradient_where_errors_are_small_and_every_rule_the_sign_of_its_own():
    deepest = {name.partition(":")[0]: ran(name)["report"].credit[-1] for name in RECIPES[:4]}
    assert deepest["Predictive coding"]["cosine"].value > 0.99  # the relaxed top is moved against the gradient
    assert deepest["Difference target propagation"]["cosine"].value == pytest.approx(1, abs=1e-6)  # by its definition


def test_forward_forward_is_audited_in_one_pass_of_all_labels():
    scope = ran("Forward-forward: one pass for every label")
    (x, _y), report = scope["batches"][0], scope["report"]
    model = scope["ForwardForward"]()
    assert report.evidence.untrue == () and model(x.float()).shape == (64, 4)
    assert all(-1 <= block["cosine"].value <= 1 for block in report.credit)
    assert report.credit[-1]["cosine"].value > 0.3  # the last goodness is part of the logits
    assert any("Partial states" in text for text in report.warnings)  # as is every goodness before it


def test_without_its_cut_a_detached_model_has_the_gradients_of_the_same_model_without_detach():
    scope = ran("`detach()` in the forward pass")
    plain = scope["Net"]().double()
    plain.load_state_dict(scope["cut"].state_dict())
    own = scope["diagnose"](plain, scope["batches"], 0.25, description=scope["blocks"])
    assert scope["report"].bp_grad_norms == pytest.approx(own.bp_grad_norms, rel=1e-9)
    assert scope["report"].evidence.untrue == ()
