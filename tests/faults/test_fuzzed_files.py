"""Damaged checkpoints, audits, sidecars and trajectories: a result or one line."""

import contextlib
import io
import json
import shutil

import pytest
from damage import altered, damaged
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from latex import check_latex
from printed_audits import printed_audits

from fa_audit.cli import main

some = settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
NOT_JSON = (b"", b"null", b"[]", b"NaN", b"\xff\xfe\x00", b"[" * 9999)
DATA = st.data()
FILES = ("dfa1.safetensors", "dfa1.csv", "dfa1.json", "dfa+frozen1.json")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with a run, its frozen baseline, its data set and its audit, all undamaged."""
    folder = tmp_path_factory.mktemp("whole")
    (audit,) = printed_audits(folder, [1])
    (folder / "audit.json").write_text(json.dumps(audit))
    return folder


@pytest.fixture
def changed(whole, tmp_path):
    """A copy of the folder, restored for every example."""

    def copy():
        shutil.rmtree(tmp_path / "changed", ignore_errors=True)
        return shutil.copytree(whole, tmp_path / "changed")

    return copy


def check(*arguments):
    """Call the command line: return nothing if it has a result, or else its one readable line."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(list(map(str, arguments)))
    refusals = [line for line in err.getvalue().splitlines() if line.startswith("fa-audit: ")]
    assert "Traceback" not in out.getvalue() + err.getvalue()
    assert (status, len(refusals)) in ((0, 0), (1, 1)), err
    if status:
        assert not out.getvalue() and len(refusals[0]) > 30 and refusals[0].isprintable()
    return "".join(refusals)


def other_bytes(content):
    """A file cut short, with another byte in it, or with more at its end."""
    places = st.integers(0, len(content) - 1)
    cut = places.map(lambda place: content[:place])
    longer = st.binary(min_size=1, max_size=9).map(lambda more: content + more)
    return cut | longer | places.map(lambda place: altered(content, place / len(content)))


def other_json(content):
    texts = damaged(json.loads(content)).map(json.dumps)
    values = texts.map(lambda text: text.encode("utf-8", "surrogatepass"))
    return values | other_bytes(content) | st.sampled_from(NOT_JSON)


@some
@given(DATA)
def test_a_damaged_audit_is_reported_or_refused(whole, tmp_path, data):
    content = (whole / "audit.json").read_bytes()
    (tmp_path / "audit.json").write_bytes(data.draw(other_json(content)))
    form, output = data.draw(st.sampled_from(["markdown", "latex"])), tmp_path / "report"
    refused = check("report", tmp_path / "audit.json", "--format", form, "--output", output)
    if form == "latex" and not refused:
        check_latex(output.read_text())


@some
@given(DATA)
def test_a_damaged_checkpoint_sidecar_baseline_or_trajectory_is_read_or_refused(changed, data):
    folder, name = changed(), data.draw(st.sampled_from(FILES))
    content = (folder / name).read_bytes()
    others = other_json if name.endswith("json") else other_bytes
    (folder / name).write_bytes(data.draw(others(content)))
    if name in ("dfa1.safetensors", "dfa1.csv") and data.draw(st.booleans()):
        (folder / "dfa1.json").unlink()  # whose SHA-256 differs before anything else is looked at
    files = ["--data", folder / "digits.safetensors", "--frozen", folder / "dfa+frozen1.json"]
    check("audit", folder / "dfa1.safetensors", *files, "--format", "json")
