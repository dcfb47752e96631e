"""States are places in a model's own forward pass, proven by exchange: passes written by hand are
the truth.
"""

import itertools
import json
import re

import pytest
import torch
import torch.nn.functional as F
from networks import medians
from projects import ROOT
from torch import nn

from fa_audit import Description, HookPoint, diagnose
from fa_audit.cli import main
from fa_audit.core.errors import AuditError
from fa_audit.networks.description import describe
from fa_audit.networks.proposals import propose

F64 = torch.float64


def batches_of(width=20, count=8):
    torch.manual_seed(1)
    return [(torch.randn(32, width, dtype=F64), torch.arange(32) % 5) for _ in range(count)]


class Net(nn.Module):
    """An embedding, three blocks and a head; what the model does with a block is `step`. Its states
    have hooks.
    """

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head, self.hook = nn.Linear(20, 12), nn.Linear(12, 5), HookPoint()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(12, 12), nn.Tanh()) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(12) for _ in range(3))
        self.context = nn.Parameter(torch.randn(12))
        self.double()

    def step(self, layer, norm, h):
        return layer(h)

    def answer(self, h):
        return self.head(h)

    def run(self, x, mark):
        """A pass with its states marked."""
        h = mark(self.embed(x))
        for layer, norm in zip(self.layers, self.norms):
            h = mark(self.step(layer, norm, h))
        return self.answer(h)

    def passes(self, x):
        """The states and the logits, without the hooks."""
        states = []
        logits = self.run(x, lambda h: states.append(h) or h)
        return states, logits

    def forward(self, x):
        return self.run(x, self.hook)


def run(model, x, mark):
    return model.run(x, mark)


class ByForward(Net):
    def step(self, layer, norm, h):
        return layer.forward(h)


class PreNorm(Net):
    def step(self, layer, norm, h):
        return h + layer(norm(h))


class Scaled(Net):
    def step(self, layer, norm, h):
        return h + 3 * layer(h)


class Rectified(Net):
    def step(self, layer, norm, h):
        return F.relu(h + layer(h))


class PostNorm(Net):
    def step(self, layer, norm, h):
        return norm(h + layer(h))


class InContext(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, context, h):
        return h + self.inner(h + context)


class SecondArgument(Net):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(map(InContext, self.layers))

    def step(self, layer, norm, h):
        return layer(self.context.expand_as(h), h)


def truth(passes, x, y, loss_fn=F.cross_entropy):
    """Median norms of states and of gradients, and growth of the blocks, of a pass that returns
    states and logits.
    """
    states, logits = passes(x)
    found = torch.autograd.grad(loss_fn(logits, y), states)
    sizes, gradients = medians(states), medians(found)
    return sizes, gradients, [after / before for before, after in itertools.pairwise(sizes)]


def assert_true(report, passes, x, y, loss_fn=F.cross_entropy):
    sizes, gradients, growths = truth(passes, x, y, loss_fn)
    assert report.residual_norms == pytest.approx(sizes, rel=1e-10)
    assert report.bp_grad_norms == pytest.approx(gradients, rel=1e-10)
    assert [layer.growth for layer in report.layers[:-1]] == pytest.approx(growths, rel=1e-10)


OUTPUTS = ["embed", "layers.*"]
FORMS = {  # wrong descriptions, and the right one by names, None where only a hook can tell
    PreNorm: (["layers.*", OUTPUTS], "norms.*"),
    Scaled: ([OUTPUTS, ["input:layers.*", "layers.2"]], "layers.*"),
    Rectified: ([OUTPUTS, ["input:layers.*", "layers.2"]], "layers.*"),
    PostNorm: ([OUTPUTS, ["input:layers.*", "layers.2"]], ["embed", "norms.*"]),
    SecondArgument: (
        ["input:layers.*", ["input:layers.1", "layers.1"], ["layers.*.inner"]],
        OUTPUTS,
    ),
    ByForward: ([["layers.*.0"]], "layers.*"),
}
WRONG = [
    (form, names) for form, (wrong, _) in FORMS.items() for names in wrong if form is not ByForward
]


@pytest.mark.parametrize(("form", "names"), WRONG)
def test_a_wrong_description_of_a_skip_is_refused_with_the_share_that_goes_past_it(form, names):
    with pytest.raises(
        AuditError, match=r"state \d \(.*\) is not whole: [\d.]+ % of what the outputs know"
    ) as caught:
        diagnose(form(), batches_of(), None, description=Description(names))
    assert len(str(caught.value).splitlines()) == 1


class SharedActivation(Net):
    """The module that runs after the last block runs after every block."""

    def __init__(self):
        super().__init__()
        self.act = nn.ReLU()

    def step(self, layer, norm, h):
        return self.act(h + layer(h))


@pytest.mark.parametrize("form", [Net, SharedActivation, *FORMS])
def test_hooks_marks_and_names_give_the_numbers_of_a_plain_pass(form):
    model, batches = form(), batches_of()
    names = FORMS[form][1] if form in FORMS else "layers.*"
    for description in (None, Description(forward=run), Description(names)):
        report = diagnose(model, batches, None, description=description)
        assert_true(report, model.passes, *batches[0])
        assert report.warnings == () and report.to_dict()["about"]["past"] == [0] * 4


def test_the_layer_that_reads_the_data_and_the_one_that_returns_the_outputs_are_no_blocks():
    layers = []
    for pair in itertools.pairwise((20, 12, 12, 9)):
        layers += [nn.Linear(*pair), nn.Tanh()]
    (proposal,) = propose(nn.Sequential(*layers, nn.Linear(9, 5)), torch.randn(8, 20))
    assert proposal.description == Description(("0", "2", "4")) and proposal.covered == 0.5


def test_states_of_one_kind_are_proposed_before_more_of_two_kinds():
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Linear(4, 12), nn.Linear(12, 5)
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(12, 2, 24, batch_first=True) for _ in range(2)
            )

        def forward(self, x):
            h = self.embed(x)
            for layer in self.layers:
                h = layer(h)
            return self.head(h[:, 0])

    assert propose(Tokens(), torch.randn(8, 5, 4))[0].description == Description(
        "layers.*", "cls token"
    )


def test_norms_before_blocks_are_proposed_with_all_blocks_between_their_inputs():
    model, batches = PreNorm(), batches_of()
    best = propose(model, batches[0][0])[0]
    assert best.description == Description("norms.*") and best.covered == 2 / 3
    assert_true(
        diagnose(model, batches, None, description=best.description), model.passes, *batches[0]
    )


def test_partial_states_are_audited_on_the_command_line_if_asked_for(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = "from test_states import Scaled, batches_of\n"
    (tmp_path / "own_scaled.py").write_text(lines, encoding="utf-8")
    command = ["audit", "own_scaled:Scaled", "--data", "own_scaled:batches_of", "--format", "json"]
    command += ["--blocks", *OUTPUTS]
    assert main(command) == 1 and "is not whole" in capsys.readouterr().err
    assert main([*command, "--partial"]) == 0
    assert json.loads(capsys.readouterr().out)["about"]["partial"] is True


def test_the_share_is_the_distance_of_the_outputs_from_those_of_the_other_samples():
    model, (x, _) = Scaled(), batches_of()[0]
    network = describe(model, Description(OUTPUTS, partial=True), x)
    with torch.no_grad():
        few, others = x[:4], x[:4].roll(1, 0)
        states, logits = model.passes(few)
        returned = model.layers[2](states[2]).roll(1, 0)
        found, expected = model.head(states[2] + 3 * returned), logits.roll(1, 0)
        assert torch.equal(model(others), expected)
    assert network.past[3] == pytest.approx(
        ((found - expected).norm() / (logits - expected).norm()).item(), rel=1e-10
    )


@pytest.mark.parametrize("form", [Net, Scaled])
def test_a_block_that_runs_three_times_is_between_four_states(form):
    model, batches = form(), batches_of()
    model.layers = nn.ModuleList([model.layers[0]] * 3)
    for description in (Description("layers.*"), Description()):
        report = diagnose(model, batches, None, description=description)
        assert len(report.residual_norms) == 4
        assert_true(report, model.passes, *batches[0])


class OneSize(Net):
    """Keeps its outputs in a buffer of 32 rows."""

    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(32, 5, dtype=F64))

    def forward(self, x):
        logits = super().forward(x)
        self.last.copy_(logits.detach().view(32, 5))
        return logits


class Skipping(nn.Module):
    """A chain whose second block runs only on a batch of a mean above 0."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.head, self.hook = nn.Linear(4, 3), HookPoint()

    def forward(self, x):
        h = x
        for number, block in enumerate(self.blocks):
            if number != 1 or x.mean() > 0:
                h = self.hook(block(h))
        return self.head(h)


@pytest.mark.parametrize("signs", [(1, -1), (-1, 1)])
def test_batches_that_reach_different_states_are_refused(signs):
    x, labels = torch.randn(12, 4), torch.arange(12) % 3
    x -= x.mean() - 0.5
    with pytest.raises(AuditError, match=r"another \d"):
        diagnose(Skipping(), [(sign * x, labels) for sign in signs], None)


def test_a_network_for_one_size_of_batch_is_run_on_whole_batches():
    model, batches = OneSize(), batches_of()
    assert_true(diagnose(model, batches, None), model.passes, *batches[0])
    assert not model.last.any()


class Rows(nn.Module):
    """A parameter with a row for every sample of one batch."""

    def __init__(self):
        super().__init__()
        self.rows = nn.Parameter(torch.randn(32, 12, dtype=F64))

    def forward(self, x):
        return self.rows


def test_a_state_that_is_a_parameter_is_not_written_to():
    model, batches = Net(), batches_of()
    model.embed = Rows()
    assert_true(diagnose(model, batches, None), model.passes, *batches[0])


def test_with_a_head_of_zeros_states_are_proven_by_the_last_one_which_is_not():
    model, batches = PreNorm(), batches_of()
    nn.init.zeros_(model.head.weight)
    report = diagnose(model, batches, None)
    assert report.to_dict()["about"]["past"] == [0, 0, 0, None]
    assert [w.code for w in report.warnings] == ["unproven states"]
    with pytest.raises(AuditError, match=r"state 1 \(layers.0\) is not whole"):
        diagnose(model, batches, None, description=Description(OUTPUTS))


def test_a_pass_of_one_s_own_is_that_of_the_model():
    model, batches = Net(), batches_of()

    def other(model, x, mark):
        return run(model, x, lambda h: mark(h.tanh()))

    with pytest.raises(
        AuditError, match=r"forward= returns other outputs than the model's own forward: 0\.\d+ of"
    ):
        diagnose(model, batches, None, description=Description(forward=other))


# --- what cannot be audited (docs/auditing.md) ----------------------------------------------------


class FunctionalHead(Scaled):
    """No module reads its last state."""

    def answer(self, h):
        return F.linear(h, self.head.weight, self.head.bias)


def test_where_no_module_reads_the_last_state_names_leave_out_the_last_block_and_a_hook_does_not():
    model, batches = FunctionalHead(), batches_of()
    by_names = diagnose(model, batches, None, description=Description("layers.*"))
    by_hooks = diagnose(model, batches, None)
    assert by_hooks.residual_norms[:-1] == by_names.residual_norms
    assert_true(by_hooks, model.passes, *batches[0])


class LongSkip(Net):
    """The first state is used again behind two blocks."""

    def forward(self, x):
        first = self.embed(x)
        return self.head(self.layers[2](self.layers[1](self.layers[0](first)) + first))


class Recurrent(nn.Module):
    """An LSTM cell over steps of time."""

    def __init__(self, both, every_step):
        super().__init__()
        torch.manual_seed(0)
        self.cell, self.head, self.hook = nn.LSTMCell(4, 12), nn.Linear(12, 5), HookPoint()
        self.both, self.every_step = both, every_step
        self.double()

    def forward(self, x):
        steps = x.view(len(x), 5, 4)
        h, c = self.cell(steps[:, 0])
        for step in range(1, 5):
            if self.both:
                h, c = self.hook(torch.cat([h, c], dim=-1)).chunk(2, dim=-1)
            else:
                h = self.hook(h)
            h, c = self.cell(steps[:, step] * self.every_step, (h, c))
        return self.head(h)


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (LongSkip(), "layers.*"),
        (Recurrent(both=False, every_step=False), ()),
        (Recurrent(both=True, every_step=True), ()),
    ],
)
def test_a_state_that_a_skip_a_second_tensor_or_later_inputs_go_past_is_refused(model, names):
    with pytest.raises(AuditError, match="is not whole"):
        diagnose(model, batches_of(), None, description=Description(names))


@pytest.mark.parametrize(
    ("model", "names"),
    [(LongSkip(), ["input:layers.0", "layers.2"]), (Recurrent(both=True, every_step=False), ())],
)
def test_states_outside_of_a_long_skip_and_all_that_a_recurrence_carries_are_whole(model, names):
    report = diagnose(model, batches_of(), None, description=Description(names))
    assert set(report.to_dict()["about"]["past"]) == {0}


class Rounded(Net):
    def step(self, layer, norm, h):
        return layer(h).mul(4).round()


def test_before_a_rounding_no_gradient_is_left_and_d2_names_the_states():
    report = diagnose(Rounded(), batches_of(), None)
    assert report.bp_grad_norms[:-1] == [0, 0, 0] and "0, 1, 2" in report.checks["reference"].note


class Masked(nn.Module):
    """A transformer whose padding is in no state."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(30, 12), nn.Linear(12, 30)
        kind = {"dropout": 0.0, "batch_first": True}
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(12, 2, 24, **kind) for _ in range(2))

    def forward(self, ids, mask):
        h = self.embed(ids)
        for block in self.blocks:
            h = block(h, src_key_padding_mask=mask)
        return self.head((h * ~mask[..., None]).sum(dim=1))


@pytest.mark.parametrize("alike", [False, True])
def test_states_under_masks_are_whole_where_all_samples_have_the_same_mask(alike):
    lengths = torch.full((32,), 5) if alike else torch.arange(32) % 5 + 3
    ids = torch.randint(30, (32, 7), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(7) >= lengths[:, None]
    batches = [{"ids": ids, "mask": mask, "labels": torch.arange(32) % 5}]
    description = Description("blocks.*", partial=not alike)
    report = diagnose(Masked(), batches, None, description=description)
    assert report.to_dict()["about"]["partial"] == (not alike)
    if not alike:
        with pytest.raises(AuditError, match="is not whole"):
            diagnose(Masked(), batches, None, description=Description("blocks.*"))


class ThroughNumpy(Net):
    def step(self, layer, norm, h):
        return torch.from_numpy(layer(h).detach().numpy())


def attached(model, x, mark):
    """The same pass within torch."""
    h = mark(model.embed(x))
    for layer in model.layers:
        h = mark(layer(h))
    return model.head(h)


def test_a_step_outside_of_torch_lets_no_gradient_through_and_forward_replaces_it():
    model, batches = ThroughNumpy(), batches_of()
    with pytest.raises(AuditError, match="no gradient reaches state 1"):
        diagnose(model, batches, None)

    report = diagnose(model, batches, None, description=Description(forward=attached))
    assert_true(report, Net().passes, *batches[0])


# --- docs/auditing.md -----------------------------------------------------------------------------

PAGE = (
    (ROOT / "docs/auditing.md")
    .read_text(encoding="utf-8")
    .partition("## Which models")[2]
    .partition("\n## ")[0]
)


def test_the_ways_to_name_states_in_the_documents_give_the_numbers_of_a_plain_pass():
    torch.manual_seed(0)
    batches = [(x.float(), y) for x, y in batches_of()]
    scope = {"test_batches": batches}
    exec("\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)), scope)
    model = scope["PreNorm"]()

    def passes(x):
        states = [model.embed(x)]
        for norm, layer in zip(model.norms, model.layers):
            states.append(states[-1] + layer(norm(states[-1])).tanh())
        return states, model.head(states[-1])

    sizes, gradients, _ = truth(passes, *batches[0])
    by_names = Description(["input:norms.*", "input:head"])
    assert f"`Description({json.dumps(by_names.blocks)})`" in PAGE
    for description in (None, Description(forward=scope["run"]), by_names, Description("norms.*")):
        report = diagnose(model, batches, None, description=description)
        assert report.residual_norms == pytest.approx(sizes, rel=1e-5)
        assert report.bp_grad_norms == pytest.approx(gradients, rel=1e-4)
    with pytest.raises(AuditError, match=re.escape("norms.*")):  # by one name, which means the same
        diagnose(model, batches, None, description=Description(["embed", "layers.*"]))
