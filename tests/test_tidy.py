"""Tables of a setting, and the parts of a sweep, are read whole or not at all."""

import re

import pandas as pd
import pytest

from fa_audit.core.errors import AuditError
from fa_audit.results.sweep import read_sweep
from fa_audit.results.tidy import DIGESTS, TABLES, read_table, read_tidy, write_tables

KEYS = pd.DataFrame({"setting": "s", "run": ["bp", "bp", "dfa", "dfa"], "seed": [1, 2, 1, 2]})


@pytest.fixture
def paths(tmp_path):
    paths = [tmp_path / f"s/{name}.csv" for name in TABLES]
    write_tables({path: KEYS.assign(value=[0.5, None, 2, 3]) for path in paths}, tmp_path / "s" / DIGESTS)
    return paths


def cut_at_every_line(path):
    """Write the file's first lines, none first, all but the last line last; then the whole file again."""
    lines = path.read_text().splitlines(keepends=True)
    for count in range(len(lines)):
        path.write_text("".join(lines[:count]))
        yield count
    path.write_text("".join(lines))


def test_a_table_cut_at_the_end_of_any_line_is_refused(paths):
    for path in paths:
        for _ in cut_at_every_line(path):
            with pytest.raises(
                AuditError, match=rf"{path}: cut short or altered .* Delete both and run snakemake again"
            ):
                read_tidy(paths)
    assert read_tidy(paths).runs.equals(read_table(paths[0]))


def test_a_table_of_another_setting_or_without_its_digest_is_refused(paths, tmp_path):
    digests = tmp_path / "s" / DIGESTS
    for content in ("[]", "{}", '{"runs.csv": null}', digests.read_text()[:-20]):
        digests.write_text(content)
        with pytest.raises(AuditError, match=r"elete (it|both) and run snakemake again"):
            read_table(paths[0])


def test_the_part_of_a_sweep_cut_at_the_end_of_any_line_or_within_the_last_is_refused(tmp_path):
    path = tmp_path / "s/dfa+penalty1e-2/seed2.csv"
    path.parent.mkdir(parents=True)
    verdicts = [None, None, None, "trustworthy"]
    path.write_text(KEYS.assign(method="dfa", penalty=0.01, four_check=verdicts).to_csv(index=False))
    for _ in cut_at_every_line(path):
        with pytest.raises(AuditError, match=re.escape(f"{path}: cut short")):
            read_sweep(path)
    assert read_sweep(path)["four_check"].tolist()[-1] == "trustworthy"
    other = path.rename(path.with_name("seed1.csv"))
    with pytest.raises(
        AuditError, match=r"of s/dfa\+penalty1e-2/seed2; expected the run of its path, .*/seed1\. Delete it"
    ):
        read_sweep(other)
    path.write_text(other.read_text()[:-3])
    with pytest.raises(AuditError, match="cut short"):
        read_sweep(path)
