"""Documents that are generated say what the code says."""

import re
import subprocess
import sys

from projects import ROOT

from fa_audit.learner import load_method
from fa_audit.methods import METHODS

CHECK = [sys.executable, str(ROOT / "tools/methods_table.py"), "--check"]


def test_the_tables_of_methods_are_those_of_the_registry():
    done = subprocess.run(CHECK, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = (ROOT / "docs/methods.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)`", text, flags=re.MULTILINE))
    assert rows == {name: load_method(name).equation for name in METHODS}


def test_a_stale_table_is_noticed(tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "benchmarks").mkdir()
    for name in ("tools/methods_table.py", "benchmarks/methods.json"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    text = (ROOT / "docs/methods.md").read_text()
    (tmp_path / "docs/methods.md").write_text(text.replace("Nokland 2016", "Somebody 2016"))
    program = [sys.executable, str(tmp_path / "tools/methods_table.py")]
    stale = subprocess.run([*program, "--check"], capture_output=True, text=True)
    assert stale.returncode == 1 and "run python tools/methods_table.py" in stale.stderr
    subprocess.run(program, check=True)
    assert (tmp_path / "docs/methods.md").read_text() == text
