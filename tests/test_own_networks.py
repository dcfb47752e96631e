"""Networks unlike the paper's: no skips, changing shapes, own losses, own backward passes; and
mistaken arguments.
"""

import itertools
import json
import sys
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from networks import batch_of, rough_learner
from torch import nn
from torch.utils.checkpoint import checkpoint

from fa_audit import Description, diagnose
from fa_audit.cli import main
from fa_audit.core.errors import AuditError
from fa_audit.data.dataset import save_dataset
from fa_audit.data.digits import digits

F64 = torch.float64


class Chain(nn.Module):
    """An embedding, blocks without skips, a head; its own gradients at every state."""

    def __init__(self, embed, blocks, head):
        super().__init__()
        self.embed, self.layers, self.head = embed, nn.ModuleList(blocks), head

    def forward(self, x):
        h = self.embed(x)
        for block in self.layers:
            h = block(h)
        return self.head(h)

    def credits(self, loss_fn=F.cross_entropy):
        def credits(model, x, y, states):
            points = [states[0].requires_grad_()]
            for block in self.layers:
                points.append(block(points[-1]))
            return torch.autograd.grad(loss_fn(self.head(points[-1]), y), points[1:])

        return credits


def linear(a, b, layer=nn.Linear):
    return nn.Sequential(layer(a, b), nn.Tanh())


def narrowing(layer=nn.Linear):
    widths = (32, 24, 16, 12)
    return Chain(
        nn.Linear(20, 32),
        [linear(a, b, layer) for a, b in itertools.pairwise(widths)],
        nn.Linear(12, 5),
    )


class Projected(nn.Module):
    """A block of a ResNet that halves the resolution, with a projection in its skip."""

    def __init__(self, a, b):
        super().__init__()
        self.path = nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.Tanh(), nn.Conv2d(b, b, 3, 1, 1))
        self.skip = nn.Conv2d(a, b, 1, 2)

    def forward(self, h):
        return torch.tanh(self.path(h) + self.skip(h))


NETWORKS = {
    "narrowing": (narrowing, (20,), "all features"),
    "square": (lambda: Chain(nn.Linear(20, 16), [linear(16, 16) for _ in range(3)], nn.Linear(16, 5)), (20,),
               "all features"),
    "resnet": (lambda: Chain(nn.Conv2d(3, 4, 3, 1, 1), [Projected(4, 6), Projected(6, 8)],
                             nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))), (3, 8, 8),
               "spatial mean"),
}  # fmt: skip
BLOCKS = "layers.*"
READ = {"all features": lambda a: a.flatten(1), "spatial mean": lambda a: a.sum(dim=(2, 3))}


def made(name, targets="labels", seed=0, batches=8):
    torch.manual_seed(seed)
    make, shape, reads = NETWORKS[name]
    given = []
    for _ in range(batches):
        x, y = torch.randn(32, *shape, dtype=F64), torch.randint(5, (32,))
        given.append((x, y if targets == "labels" else torch.randn(32, 5, dtype=F64)))
    return make().double(), given, Description(BLOCKS, reads)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(
    ("loss_fn", "targets"), [(F.cross_entropy, "labels"), (F.mse_loss, "floats")]
)
def test_the_exact_gradient_scores_one_and_half_noise_its_own_cosine(name, loss_fn, targets):
    model, batches, description = made(name, targets)
    exact, x = model.credits(loss_fn), batches[0][0]
    report = diagnose(model, batches, None, description=description, credits=exact, loss_fn=loss_fn)
    for block in report.credit:
        ceiling = block["rho_bp"].value
        found = [block[key].value for key in ("cosine", "scale", "rho")]
        assert found == pytest.approx([1, 1, ceiling], abs=1e-9)
        assert ceiling > 0.99 and block["nudging"].value < 0

    def mixed(model, x, y, states):
        unit = [
            a / a.flatten(1).norm(dim=1).view(-1, *[1] * (a.dim() - 1))
            for a in exact(model, x, y, states)
        ]
        randomness = torch.Generator().manual_seed(1)
        return [a + torch.randn(a.shape, dtype=F64, generator=randomness) / a[0].numel() ** 0.5
                for a in unit]  # fmt: skip

    report = diagnose(model, batches, None, description=description, credits=mixed, loss_fn=loss_fn)
    states = [model.embed(x).detach()]
    read = READ[description.reads]
    expected = []
    for a, g in zip(mixed(model, *batches[0], states), exact(model, *batches[0], states)):
        expected.append(F.cosine_similarity(read(a), read(g), eps=0).mean().item())
    assert [block["cosine"].value for block in report.credit] == pytest.approx(expected, abs=1e-6)


def test_fresh_draws_directions_and_blocks_are_those_asked_for_and_equal_draws_count_once():
    model, batches, description = made("narrowing")

    def draw(model, x, y, states, number):
        return [torch.randn_like(h) for h in states[1:]]

    def constant(model, x, y, states, number):
        return [torch.ones_like(h) for h in states[1:]]

    def audited(draw):
        given = {"credits": model.credits(), "draw": draw, "directions": 3, "blocks": [2]}
        return diagnose(model, batches, None, description=description, **given)

    stream, report = torch.get_rng_state(), audited(draw)
    null = report.deep["fresh_b_null"]
    assert torch.equal(torch.get_rng_state(), stream) and audited(draw).deep["fresh_b_null"] == null
    assert (null.n, null.n_valid) == (20, 20) and abs(null.value) < 3 * null.std / 20**0.5
    assert ["left out" in block["rho"].reason for block in report.credit] == [True, True, False]
    assert report.credit[2]["rho"].n == 3 * 32
    once = audited(constant).deep["fresh_b_null"]
    assert once.n == 1 and once.std is once.interval is None


def test_a_loss_that_is_no_mean_over_samples_has_cosines_and_no_rho():
    def spread(logits, y):
        return F.cross_entropy(logits, y) + logits.mean(dim=0).square().sum()

    model, batches, description = made("square")
    given = {"credits": model.credits(spread), "loss_fn": spread}
    block = diagnose(model, batches, None, description=description, **given).credit[0]
    assert block["cosine"].value == pytest.approx(1, abs=1e-9)
    assert "not the mean" in block["rho"].reason


class Feedback(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, feedback):
        ctx.save_for_backward(x, feedback)
        return x @ weight.T + bias

    @staticmethod
    def backward(ctx, grad):
        x, feedback = ctx.saved_tensors
        return grad @ feedback, grad.T @ x, grad.sum(0), None


class FALinear(nn.Linear):
    def __init__(self, a, b):
        super().__init__(a, b)
        self.register_buffer("feedback", torch.randn(b, a) / a**0.5)

    def forward(self, x):
        return Feedback.apply(x, self.weight, self.bias, self.feedback)


def test_the_bias_of_predictions_is_measured_where_stability_fires():
    model, batches, description = made("square")
    model.head.bias.data[3] = 3.0
    report = diagnose(model, batches, None, description=description)
    found = report.frequencies
    p = torch.cat([model(x).softmax(dim=-1) for x, _ in batches]).mean(dim=0)
    y = torch.cat([F.one_hot(labels, 5) for _, labels in batches]).double().mean(dim=0)
    assert report.checks["stability"].fires and "C" in report.flags
    assert found.gaps == pytest.approx((p - y).tolist(), abs=1e-9)
    assert found.refitted.value < 0.3 < report.cross_batch_stability
    assert diagnose(made("square")[0], batches, None, description=description).frequencies is None


def test_states_below_the_floor_and_exploding_gradients_are_named_though_d2_is_fine():
    model, batches, description = made("square")
    with torch.no_grad():
        model.layers[0][0].weight.mul_(1e-9)
    report = diagnose(model, batches, None, description=description, credits=model.credits())
    assert report.checks["reference"].fires is False
    with torch.no_grad():
        model.head.weight.mul_(1e8)
    found = diagnose(model, batches, None, description=description).warnings
    assert "exploding gradient" in [warning.code for warning in found]


def test_a_frozen_baseline_below_the_nearest_class_mean_of_the_embedding_is_named():
    model, batches, description = made("square")
    nn.init.eye_(model.embed.weight)
    batches = [(x, x[:, :5].argmax(dim=-1)) for x, _ in batches]
    batches[0][1][:3] = -100
    options = {"description": description, "loss_fn": nn.CrossEntropyLoss(label_smoothing=0.1)}
    report = diagnose(model, batches, 0.4, 0.2, **options)
    assert [warning.code for warning in report.warnings] == ["weak baseline"]
    assert diagnose(model, batches, 0.2, 0.9, **options).warnings == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda b: [b[0]] * 8, "more than once"),
        (
            lambda b: [(x, torch.full_like(y, i % 5)) for i, (x, y) in enumerate(b)],
            "one class only",
        ),
    ],
)
def test_batches_that_make_stability_large_by_themselves_are_named(change, words):
    model, batches, description = made("square")
    found = diagnose(model, change(batches), None, description=description).warnings
    assert any(words in warning.text for warning in found)


def test_a_loss_that_grows_with_its_batch_is_a_warning():
    def root(logits, labels):
        return F.cross_entropy(logits, labels, reduction="sum") / len(labels) ** 0.5

    model, batches, description = made("square")
    report = diagnose(model, batches, None, description=description, loss_fn=root)
    assert any("size of the batch" in str(warning) for warning in report.warnings)


class Output(NamedTuple):
    logits: torch.Tensor


class Named(nn.Module):
    """Takes its inputs by name and returns an object with logits, as models of Hugging Face do, or
    a mapping.
    """

    def __init__(self, model, answer):
        super().__init__()
        self.inner, self.answer = model, answer

    def forward(self, pixels, mask, labels=None):
        assert labels is None and mask.dtype == torch.int64 and pixels.dtype == F64
        return self.answer(self.inner(pixels * mask))


class First(nn.Module):
    def forward(self, pair):
        return pair[0]


class Pair(nn.Module):
    """Returns the state first in a tuple."""

    def forward(self, h):
        return h, None


def test_wrappers_mappings_outputs_with_logits_and_states_in_tuples_change_nothing():
    model, batches, description = made("square")
    own = diagnose(model, batches, 0.2, description=description)
    ones = torch.ones(32, 1, dtype=torch.int64)
    mappings = [{"pixels": x, "mask": ones, "labels": y} for x, y in batches]
    inner = Description("inner.layers.*", "all features")
    named = diagnose(Named(model, Output), mappings, 0.2, description=inner)
    entry = diagnose(
        Named(model, lambda z: {"loss": None, "logits": z}), mappings, 0.2, description=inner
    )
    parallel = diagnose(nn.DataParallel(model), batches, 0.2, description=description)
    compiled = diagnose(
        torch.compile(model, backend="eager"), batches, 0.2, description=description
    )
    pairs = [nn.Sequential(block, Pair()) for block in model.layers]
    model.layers = nn.ModuleList(nn.Sequential(pair, First()) for pair in pairs)
    tuples = diagnose(model, batches, 0.2, description=Description("layers.*.0", "all features"))
    for report in (named, entry, parallel, compiled, tuples):
        assert report.bp_grad_norms == pytest.approx(own.bp_grad_norms, rel=1e-12)
        assert report.cross_batch_stability == pytest.approx(own.cross_batch_stability, rel=1e-9)


@pytest.mark.parametrize(
    "batch",
    [
        None,
        (torch.zeros(4, 2), torch.zeros(4)),
        {},
        {"labels": torch.zeros(4)},
        {"x": torch.zeros(4, 2)},
        {"x": torch.zeros(3, 2), "labels": torch.zeros(4)},
        {"x": torch.zeros(0, 2), "labels": torch.zeros(0)},
        {"x": torch.zeros(4, 2).to_sparse(), "labels": torch.zeros(4)},
        {"x": None, "labels": torch.zeros(4)},
        {3: torch.zeros(4, 2), "labels": torch.zeros(4)},
    ],
)
def test_a_mapping_that_is_no_batch_is_an_error(batch):
    good = {"x": torch.zeros(4, 2), "labels": torch.zeros(4, dtype=torch.int64)}
    with pytest.raises(AuditError, match=r"eval_batches: found a .*expected"):
        diagnose(nn.Identity(), [good, batch], None)


class InPlace(Chain):
    def forward(self, x):
        h = self.embed(x)
        for block in self.layers:
            h += block(h)
        return self.head(h)


def test_frozen_blocks_that_change_their_state_in_place_are_audited():
    blocks = [nn.Sequential(nn.Linear(6, 6), nn.ReLU()) for _ in range(2)]
    model = InPlace(nn.Linear(20, 6), blocks, nn.Linear(6, 5)).double()
    model.layers.requires_grad_(False)
    report = diagnose(model, made("square")[1], None, description=Description("layers.*"))
    assert report.about["share"] == 84 / 245


@pytest.mark.parametrize("reads", ["spatial mean", "spatial mean, channels last"])
def test_a_head_that_flattens_maps_reads_no_mean(reads):
    layers = [nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1), nn.Flatten()]
    model, x = nn.Sequential(*layers, nn.Linear(144, 5)), torch.rand(8, 3, 6, 6)
    with pytest.raises(AuditError, match="Expected all features"):
        diagnose(
            model, [(x, torch.arange(8) % 5)], None, description=Description(["0", "1"], reads)
        )


class Checkpointed(nn.Sequential):
    def forward(self, h):
        return checkpoint(super().forward, h, use_reentrant=False)


def test_activation_checkpointing_is_refused_by_its_name():
    model, batches, description = made("square")
    model.layers = nn.ModuleList(Checkpointed(*block) for block in model.layers)
    with pytest.raises(AuditError, match="activation checkpointing"):
        diagnose(model, batches, 0.2, description=description)


def test_the_record_says_what_the_audit_was_made_with():
    model, batches, description = made("square")
    about = diagnose(model, batches, None, description=description).to_dict()["about"]
    assert about["versions"]["torch"] == torch.__version__ and about["model"].endswith("Chain")
    assert (about["dtype"], about["device"], about["reads"]) == ("float64", "cpu", "all features")
    assert about["states"][:2] == ["input:layers.0", "layers.0"]
    model = rough_learner("resmlp").network
    inside, whole = (sum(p.numel() for p in part.parameters()) for part in (model.blocks, model))
    x, labels = batch_of()
    assert diagnose(model, [(x, labels)], None).about["share"] == inside / whole < 1


PYRAMID = """
from math import prod
from torch import nn
from fa_audit.networks.network import Network

class Pyramid(Network):
    skip = "none"
    reshapes = True

    def __init__(self, image_shape, classes, depth=3):
        super().__init__()
        self.widths, self.classes = tuple(32 - 8 * layer for layer in range(depth + 1)), classes
        self.embed = nn.Sequential(nn.Flatten(), nn.Linear(prod(image_shape), 32))
        pairs = zip(self.widths, self.widths[1:])
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(*pair), nn.Tanh()) for pair in pairs)
        self.head = nn.Linear(self.widths[-1], classes)

class Undeclared(Pyramid):
    reshapes = False
"""


@pytest.fixture(scope="module")
def pyramid(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pyramid")
    (folder / "pyramid.py").write_text(PYRAMID, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        save_dataset(digits(None), "digits.safetensors")
        yield folder


def trained(run, network="pyramid:Pyramid"):
    output = f"{run}.{network.partition(':')[2]}.safetensors"
    command = ["train", run, output, "--data", "digits.safetensors", "--epochs", "1"]
    return main([*command, "--architecture", network, "--depth", "3"])


@pytest.mark.parametrize("run", ["bp", "fa", "dfa", "drtp", "usf", "ep"])
def test_blocks_of_changing_width_are_trained_and_audited(pyramid, capsys, run):
    assert trained(run) == 0
    capsys.readouterr()
    options = "--data digits.safetensors --architecture pyramid:Pyramid --format json"
    assert main(["audit", f"{run}.Pyramid.safetensors", *options.split()]) == 0
    audit = json.loads(capsys.readouterr().out)
    for block in audit["credit"]:
        assert block["rho_bp"]["value"] == pytest.approx(1, abs=1e-3)
        assert block["cosine_at_input"]["reason"]
        assert run != "bp" or block["cosine"]["value"] == pytest.approx(1)
    assert run == "bp" or audit["credit"][0]["cosine"]["value"] < 0.999


def test_what_a_network_of_changing_width_cannot_do_is_said_before_it_is_trained(pyramid, capsys):
    assert trained("credit_bridge") == 1 and "reads all states alike" in capsys.readouterr().err
    assert trained("dfa", "pyramid:Undeclared") == 1 and "expected True" in capsys.readouterr().err


OWN_CODE = """import torch
from torch import nn
print("imported")
torch.manual_seed(0)
def batches():
    print("batches")
    return [(torch.randn(8, 20), torch.arange(8) % 5) for _ in range(2)]
class Net(nn.Sequential):
    def forward(self, x):
        print("forward")
        return super().forward(x)
def model():
    linear = lambda a, b: (nn.Linear(a, b), nn.Tanh())
    return Net(*linear(20, 16), *linear(16, 12), *linear(12, 8), nn.Linear(8, 5))
def credits(model, x, y, states):
    print("credits")
    return [h + 1 for h in states[1:]]
def draw(model, x, y, states, number):
    return [h + number for h in states[1:]]
def loss(logits, labels):
    print("loss")
    return nn.functional.cross_entropy(logits, labels)
"""
COMMAND = (
    "audit mine:model --data mine:batches --credits mine:credits --draw mine:draw --loss mine:loss "
)
COMMAND += "--accuracy 0.2 --test-samples 500 --frozen 0.1 --directions 1 --format json"


def own_file(folder, monkeypatch, code):
    (folder / "mine.py").write_text(code, encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    monkeypatch.syspath_prepend(folder)


def test_the_command_line_audits_a_model_of_a_file_and_what_it_prints_leaves_json_alone(
    tmp_path, monkeypatch, capsys
):
    own_file(tmp_path, monkeypatch, OWN_CODE)
    assert main(COMMAND.split()) == 0
    printed = capsys.readouterr()
    audit = json.loads(printed.out)
    assert (audit["headline_acc"], audit["baselines"]["own"]) == (0.2, 0.1)
    assert audit["credit"][0]["fresh_b_cosine"]["n"] == 20 and audit["checks"]["depth"]["interval"]
    assert audit["model"] == "mine:model"
    assert 'Description(("0", "2", "4"), "all features")' in printed.err
    assert {"imported", "batches", "forward", "credits", "loss"} <= set(printed.err.split())


@pytest.mark.parametrize("place", ["batches", "forward", "credits", "loss", "imported"])
def test_user_code_that_ends_the_program_is_an_error(place, tmp_path, monkeypatch, capsys):
    own_file(tmp_path, monkeypatch, OWN_CODE.replace(f'print("{place}")', "raise SystemExit(0)"))
    assert main([*COMMAND.split(), "--blocks", "2"]) == 1
    printed = capsys.readouterr()
    assert not printed.out and "mine" in printed.err and "Traceback" not in printed.err
    assert len([line for line in printed.err.splitlines() if line.startswith("fa-audit: ")]) == 1
