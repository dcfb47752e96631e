"""External models: their entries in a configuration, their weights, their inputs."""

import pytest
import torch
from networks import assert_same_bits
from safetensors.torch import save_file
from torch import nn

from fa_audit import DiagnosticThresholds
from fa_audit.audit.model_audit import audit_model, build_model, fitted
from fa_audit.core.errors import AuditError
from fa_audit.experiments.config import model_entry

ENTRY = {
    "model": "test_models:small",
    "dataset": "digits",
    "blocks": ["0", "2"],
    "reads": "spatial mean",
    "arguments": {"classes": 3},
}


def small(classes, width=4):
    """What a configuration names: a CNN for images of three channels."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.Conv2d(width, width, 3), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(width, classes),
    )  # fmt: skip


def no_model():
    return "weights"


def entry(**changes):
    return model_entry({"mine": ENTRY | changes}, "mine")


def audited(dataset, **changes):
    return audit_model(
        "mine", entry(image_shape=[3, 10, 12], **changes), dataset, "cpu", DiagnosticThresholds()
    )


def test_random_weights_are_those_of_the_seed_and_leave_the_global_stream_alone():
    before = torch.get_rng_state()
    found = build_model(entry(seed=1)).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        assert_same_bits(found, small(3).state_dict())


def test_weights_come_from_a_file(tmp_path):
    saved = {key: torch.full_like(value, 0.5) for key, value in small(3).state_dict().items()}
    save_file(saved, tmp_path / "w.safetensors")
    found = build_model(entry(weights=str(tmp_path / "w.safetensors"))).state_dict()
    assert_same_bits(found, saved)
    torch.save(saved, tmp_path / "w.pt")
    with pytest.raises(AuditError, match=r"w\.pt: no safetensors file"):
        build_model(entry(weights=str(tmp_path / "w.pt")))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"5.bias": None}, 'Missing key(s) in state_dict: "5.bias"'),
        ({"5.bias": torch.zeros(4)}, "size mismatch for 5.bias"),
    ],
)
def test_weights_that_do_not_fit(tmp_path, change, words):
    tensors = small(3).state_dict() | change
    path = tmp_path / "w.safetensors"
    save_file({key: value for key, value in tensors.items() if value is not None}, path)
    with pytest.raises(AuditError) as failure:
        build_model(entry(weights=str(path)))
    assert words in str(failure.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "test_models:smal"}, "unknown model of test_models 'smal'"),
        (
            {"arguments": {"clases": 3}},
            "test_models:small with arguments {'clases': 3} failed: TypeError",
        ),
        (
            {"model": "test_models:no_model", "arguments": {}},
            "returned str; expected a torch.nn.Module",
        ),
    ],
)
def test_what_makes_no_model(change, words):
    with pytest.raises(AuditError) as failure:
        build_model(entry(**change))
    assert words in str(failure.value)


def test_images_are_brought_to_the_model_s_shape():
    grey, rgb = torch.rand(2, 1, 4, 4), torch.rand(2, 3, 4, 4)
    assert torch.equal(fitted(rgb, (3, 4, 4)), rgb) and torch.equal(fitted(grey, (1, 4, 4)), grey)
    assert torch.equal(fitted(grey, (3, 4, 4)), torch.cat([grey] * 3, dim=1))
    ramp = torch.arange(4.0).expand(1, 1, 4, 4)
    torch.testing.assert_close(fitted(ramp, (1, 4, 8))[0, 0, 0, 1:7], torch.arange(0.25, 3, 0.5))
    edge = torch.eye(8)[:1].expand(1, 1, 8, 8)
    assert (fitted(edge, (1, 8, 2))[..., 0] > 0).all()  # a smaller image sees every pixel
    with pytest.raises(AuditError, match=r"found \[1, 4, 4\] for images of 3 channels"):
        fitted(rgb, (1, 4, 4))


def test_accuracy_is_of_the_whole_test_set_in_evaluation_mode_unless_it_is_given(dataset):
    report = audited(dataset, batches=1)
    model = build_model(entry()).eval()
    images = fitted(dataset.normalise(dataset.test_images), (3, 10, 12))
    expected = (model(images).argmax(1) == dataset.test_labels).double().mean().item()
    assert report.headline_acc == expected and "computed on the whole test set" in report.notes
    given = audited(dataset, batches=1, accuracy=0.25, frozen_accuracy=0.25, bp_frozen_accuracy=0.5)
    assert given.headline_acc == 0.25 and "given by the configuration" in given.notes
    assert given.checks["depth"].fires and given.checks["depth_strict"].value == -0.25
    assert report.checks["depth"].fires is None and "INCOMPLETE" in report.three_check_verdict
