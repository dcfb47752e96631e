"""Networks, batches and audits that were once measured wrongly in silence: plain passes of torch
are the truth.
"""

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
from test_own_networks import BLOCKS, F64, Chain, FALinear, Feedback, linear, made, narrowing
from test_states import truth
from torch import nn

from fa_audit import Description, Monitor, diagnose
from fa_audit.cli import main
from fa_audit.core.errors import AuditError
from fa_audit.networks.proposals import propose
from fa_audit.networks.states import as_pair

ALL = Description(BLOCKS, "all features")


class Skips(Chain):
    """A chain with a skip around some blocks."""

    def __init__(self, skips, widths=(12, 12, 12, 12), blocks=None):
        torch.manual_seed(3)
        blocks = blocks or [linear(a, b) for a, b in itertools.pairwise(widths)]
        super().__init__(nn.Linear(20, widths[0]), blocks, nn.Linear(widths[-1], 5))
        self.skips = skips

    def passes(self, x):
        states = [self.embed(x)]
        for skip, block in zip(self.skips, self.layers):
            before = states[-1] if skip else 0
            states.append(before + block(states[-1]))
        return states, self.head(states[-1])

    def forward(self, x):
        return self.passes(x)[1]


UNEVEN = {
    "the first block has none": ((0, 1, 1), (20, 12, 12, 12)),
    "the last block has none": ((1, 1, 0), (12, 12, 12, 12)),
    "the last block narrows": ((1, 1, 0), (12, 12, 12, 8)),
    "the last block ends in one feature": ((1, 1, 0), (12, 12, 12, 1)),
    "one block": ((1,), (12, 12)),
}


@pytest.mark.parametrize("case", UNEVEN)
def test_a_skip_is_seen_block_by_block_and_the_last_one_is_not_guessed(case):
    model, batches = Skips(*UNEVEN[case]).double(), made("square")[1]

    def top(model, x, y, states):
        h = states[-1].requires_grad_()
        others = [torch.ones_like(state) for state in states[1:-1]]
        return [*others, torch.autograd.grad(F.cross_entropy(model.head(h), y), h)[0]]

    report = diagnose(model, batches, None, description=ALL, credits=top)
    with torch.no_grad():
        norms = [h.norm(dim=1).median().item() for h in model.passes(batches[0][0])[0]]
    assert report.residual_norms == pytest.approx(norms)
    assert report.credit[-1]["cosine"].value == pytest.approx(1)
    assert report.bp_grad_norms == pytest.approx(truth(model.passes, *batches[0])[1])
    if len(model.layers) > 1:
        assert propose(model, batches[0][0])[0].description == ALL


@pytest.mark.parametrize(("block", "place"), [(nn.Identity(), 1), (nn.Dropout(0.1), 2)])
def test_a_block_that_returns_its_input_itself_has_its_own_gradient(block, place):
    blocks = [linear(12, 12) for _ in range(3)]
    blocks[place] = block
    model, batches = Skips((1, 1, 1), blocks=blocks).double(), made("square")[1]
    report = diagnose(model, batches, None, description=ALL)
    expected = truth(copy.deepcopy(model).eval().passes, *batches[0])[1]
    assert report.bp_grad_norms == pytest.approx(expected)


class Keeps(Chain):
    """Feedback alignment that keeps its activations."""

    def forward(self, x):
        self.activations = [self.embed(x)]
        for block in self.layers:
            self.activations.append(block(self.activations[-1]))
        return self.head(self.activations[-1])


class ListedFeedback(nn.Linear):
    def __init__(self, a, b):
        super().__init__(a, b)
        self.feedback = {"all": torch.randn(b, a) / a**0.5}

    def forward(self, x):
        return Feedback.apply(x, self.weight, self.bias, self.feedback["all"])


def test_its_own_backward_pass_is_found_whatever_a_model_and_its_loss_keep():
    torch.manual_seed(6)
    inner, loss_fn = narrowing(ListedFeedback), nn.CrossEntropyLoss(weight=torch.arange(1.0, 6.0))
    model = Keeps(inner.embed, inner.layers, inner.head)
    batches = [(x.float(), y) for x, y in made("narrowing")[1]]
    model(batches[0][0])
    report = diagnose(
        model, batches, None, description=ALL, loss_fn=loss_fn, credits=model.credits(loss_fn)
    )
    assert report.untrue == (0, 1, 2) and report.credit[0]["cosine"].value is None


class Clears(Skips):
    """Keeps its activations and clears them at the beginning of the next pass, so that their memory
    is used again.
    """

    def passes(self, x):
        kept = self.__dict__.setdefault("kept", [])
        kept.clear()
        states, logits = super().passes(x)
        kept.extend(states)
        return states, logits


def test_activations_that_are_cleared_are_not_taken_for_the_next_ones():
    model, x, y = Clears((1, 1, 1), (64,) * 4), torch.randn(256, 20), torch.arange(256) % 5
    model(x)
    report = diagnose(model, [(x, y)], None, description=ALL)
    assert report.bp_grad_norms == pytest.approx(truth(model.passes, x, y)[1], rel=1e-4)


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(label_smoothing=1e-9),  # not the function that the audit knows
        lambda logits, y: nn.functional.cross_entropy(logits, y, reduction="sum") / len(y),
    ],
)
def test_labels_that_a_loss_ignores_do_not_shrink_an_estimated_gradient(loss):
    torch.manual_seed(8)
    inner = narrowing(FALinear).double()
    plain = narrowing().double()
    plain.load_state_dict(inner.state_dict(), strict=False)  # all but the feedback
    x = torch.randn(256, 20, dtype=F64)
    y = torch.where(torch.arange(256) % 9 < 4, -100, torch.arange(256) % 5)
    estimated, exact = (
        diagnose(model, [(x, y)], None, description=ALL, loss_fn=loss) for model in (inner, plain)
    )
    assert estimated.bp_grad_norms == pytest.approx(exact.bp_grad_norms, rel=0.2)


def test_mappings_are_read_by_their_names_in_whatever_order():
    batch = {"ids": torch.arange(8), "mask": torch.ones(8, 4), "labels": torch.arange(8) % 5}
    one, other = as_pair(batch), as_pair(dict(reversed(batch.items())))
    assert all(map(torch.equal, one, other)) and one[0].shape == (8, 5)


def test_a_batch_of_another_size_is_left_out_of_the_stability_and_maps_of_two_sizes_are_refused():
    model, batches, description = made("square", batches=9)
    small = tuple(part[:5] for part in batches[8])
    model.head.bias.data[3] = 3.0  # (c) fires, and predictions are compared with labels
    found = []
    for given in (batches[:8], [*batches[:8], small], [small, *batches[:8]]):
        report = diagnose(model, given, None, description=description)
        found.append((report.stability, report.frequencies, report.batches))
    assert found == [found[0]] * 3 and found[0][2] == 8
    with pytest.raises(AuditError, match="found 'C' with 7 batches; expected 8 or more"):
        Monitor(model, [*batches[:7], small], description=description, stop_on="C")
    head = nn.Sequential(nn.AdaptiveAvgPool2d((1, 6)), nn.Flatten(), nn.Linear(6, 5))
    tokens = Chain(nn.Linear(2, 6), [linear(6, 6) for _ in range(2)], head)
    uneven = [(torch.randn(8, length, 2), torch.arange(8) % 5) for length in (9, 12)]
    with pytest.raises(AuditError, match="have 54, 72 entries"):
        diagnose(tokens, uneven, None, description=ALL)


def test_nan_in_the_data_is_not_the_networks_fault():
    model, batches, description = made("square")
    batches[5][0][3, 2] = torch.nan
    report = diagnose(model, batches, None, description=description)
    (text,) = (warning.text for warning in report.warnings if warning.code == "gaps in data")
    assert "batch 5" in text


def test_a_state_that_vanishes_is_not_said_to_inflate():
    model, batches, description = made("square")
    for parameter in model.layers.parameters():
        nn.init.zeros_(parameter)
    report = diagnose(model, batches, None, description=description)
    assert report.flags == ["D1 (vanished state)"]


def test_labels_below_zero_of_an_own_loss_are_labels_unless_it_names_one_that_it_ignores():
    model, batches, description = made("square")
    one = [(x, torch.where(torch.arange(32) < 9, -1, 2)) for x, _ in batches]
    loss = nn.CrossEntropyLoss(ignore_index=-1)
    found = diagnose(model, one, None, description=description, loss_fn=loss).warnings
    assert any("one class only" in warning.text for warning in found)
    signs = [(x, 2 * (y % 2) - 1) for x, y in batches]
    hinge = lambda z, y: (1 - y * z[:, 0]).mean()  # noqa: E731
    report = diagnose(model, signs, 0.9, 0.5, description=description, loss_fn=hinge)
    assert report.warnings == ()


def test_a_sum_is_refused_though_the_first_batch_has_one_sample():
    model, batches, description = made("square")
    one = [tuple(part[:1] for part in batches[0]), *batches]
    loss = nn.CrossEntropyLoss(reduction="sum")
    with pytest.raises(AuditError, match="found a sum over the batch"):
        diagnose(model, one, None, description=description, loss_fn=loss)


def test_one_network_is_not_two_seeds_unless_it_diverged(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model, batches, _ = made("square")

    def written(*names):
        for name in names:
            diagnose(model, batches, 0.3, 0.2, description=ALL).write(name)

    written("one", "again")
    assert main(["report", "one", "again"]) == 1
    assert "the same audit as one" in capsys.readouterr().err
    model.head.bias.data.fill_(torch.nan)
    written("lost", "lost too")
    assert main(["report", "lost", "lost too"]) == 0


def classifier(prepare=lambda x: x, end=lambda z: z):
    """A plain MLP, with what its forward pass does to inputs and outputs."""
    torch.manual_seed(5)

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            widths = (20, 16, 16, 16, 20)
            self.fc = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))

        def forward(self, x):
            h = prepare(x)
            for layer in self.fc[:-1]:
                h = layer(h).tanh()
            return end(self.fc[-1](h))

    return Classifier()


@pytest.mark.parametrize(
    "given",
    [{"end": lambda z: z.log_softmax(dim=1)}, {"prepare": lambda x: (x - 0.5) / 0.25}],
)
def test_neither_normalised_data_nor_outputs_behind_the_head_are_states_of_a_proposal(given):
    x = torch.rand(8, 20)
    plain, other = (propose(model, x)[0] for model in (classifier(), classifier(**given)))
    assert other.description == plain.description


def test_data_that_are_only_normalised_are_named_as_a_state():
    model, description = classifier(lambda x: 2 * x), Description("fc.*")
    report = diagnose(model, [(torch.rand(8, 20), torch.arange(8))], None, description=description)
    assert [warning.code for warning in report.warnings] == ["data as state"]


def test_maps_before_a_last_state_that_is_a_vector_are_read_whole():
    torch.manual_seed(6)
    layers = [nn.Conv2d(2, 4, 3), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(144, 5)]
    model, x = nn.Sequential(*layers, nn.Linear(5, 3)), torch.rand(8, 2, 10, 10)
    batches = [(x, torch.arange(8) % 3)]
    report = diagnose(model, batches, None, description=Description(("0", "1", "3"), None))
    norms = model[0](x).flatten(1).norm(dim=1)
    assert report.layers[0].hidden_norm == pytest.approx(norms.median().item(), rel=1e-5)


@pytest.mark.parametrize(
    ("end", "loss_fn"),
    [
        (lambda z: z[:, 0], lambda z, y: F.binary_cross_entropy_with_logits(z, (y > 3).float())),
        (lambda z: z.view(-1, 5, 4), lambda z, y: F.cross_entropy(z[:, 0], y % 4)),
        (lambda z: -z, lambda z, y: F.cross_entropy(-z, y)),
    ],
)
def test_outputs_that_are_no_logits_contradict_no_accuracy(end, loss_fn):
    model, batches = classifier(end=end), [(torch.rand(64, 20), torch.arange(64) % 9)]
    description = Description(("fc.0", "fc.1", "fc.2"))
    report = diagnose(model, batches, 0.99, 0.5, description=description, loss_fn=loss_fn)
    assert report.hits is None and report.warnings == ()


def test_a_model_that_returns_a_tuple_is_told_what_is_expected():
    model = classifier(end=lambda z: (z, z.mean()))
    with pytest.raises(AuditError, match=r"returns tuple.*\.logits"):
        propose(model, torch.rand(8, 20))
    with pytest.raises(AuditError, match="batch: found"):
        propose(classifier(), (torch.rand(8, 20), torch.zeros(8)))


def test_straight_through_gradients_of_fake_quantisation_are_found():
    scale = 0.1

    def quantised(z):
        return torch.fake_quantize_per_tensor_affine(z, scale, 0, -128, 127)

    model = classifier(end=quantised)
    report = diagnose(
        model,
        [(torch.rand(32, 20), torch.arange(32) % 9)],
        None,
        description=Description(("fc.0", "fc.1")),
    )
    assert report.untrue or report.unchecked


def test_a_step_of_a_monitor_that_fails_is_no_epoch():
    model, batches, description = made("square")
    monitor = Monitor(model, batches, description=description)
    with torch.inference_mode(), pytest.raises(AuditError):
        monitor.step()
    monitor.step()
    assert monitor.epoch == 1 and monitor.metrics
