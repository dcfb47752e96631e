"""Audits as `fa-audit audit --format json` prints them: short runs of DFA on the digits."""

import contextlib
import io
import json

from fa_audit.cli import main
from fa_audit.core.files import signed, write_text
from fa_audit.data.dataset import save_dataset
from fa_audit.data.digits import digits

SMALL = ["--width", "16", "--depth", "2", "--epochs", "1", "--batch-size", "64"]


def printed_audits(folder, seeds):
    """Train a run and its own frozen baseline for every seed, audit it, and read what is printed."""
    data = str(folder / "digits.safetensors")
    save_dataset(digits(None), data)
    return [_printed_audit(folder, data, str(seed)) for seed in seeds]


def _printed_audit(folder, data, seed):
    for run in ("dfa", "dfa+frozen"):
        output = str(folder / f"{run}{seed}.safetensors")
        assert main(["train", run, output, "--data", data, *SMALL, "--seed", seed]) == 0
    arguments = ["audit", f"{folder}/dfa{seed}.safetensors", "--data", data]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert (
            main([*arguments, "--frozen", f"{folder}/dfa+frozen{seed}.json", "--format", "json"])
            == 0
        )
    return json.loads(printed.getvalue())


def written(folder, audits):
    """Write audits into files, signed, and return the paths."""
    paths = [str(folder / f"audit{number}.json") for number in range(len(audits))]
    for path, audit in zip(paths, audits):
        write_text(path, json.dumps(signed(audit)))
    return paths
