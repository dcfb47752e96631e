"""Figures and tables of a configuration of which some settings were not run."""

import matplotlib.pyplot as plt
import yaml
from projects import ROOT

from fa_audit.experiments.read_grid import read_grid
from fa_audit.results import artefacts
from fa_audit.results.figures import files
from fa_audit.results.kinds import KINDS

CONFIG = {
    "figures": {
        "trajectories": {"settings": ["main_audit", "vit_mini_clipped"], "title": "Over training"}
    },
    "tables": {
        "cross": {"kind": "comparison", "settings": ["vit_mini_clipped"], "title": "Audits"}
    },
    "labels": {"vit_mini_clipped": "ViT-Mini"},
}


def test_what_is_there_is_drawn_and_what_is_absent_is_named(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(files, "save", lambda figure, path, origin: drawn.append(figure))
    settings = yaml.safe_load((ROOT / "config.yaml").read_text())["settings"]
    config = CONFIG | {
        "settings": {name: settings[name] for name in ("main_audit", "vit_mini_clipped")}
    }
    grid = read_grid(config, KINDS)
    made = dict(artefacts.artefacts_from(config, grid, ROOT / "reference/measured", tmp_path))
    assert made["figures/trajectories"] == "" and "vit_mini_clipped" in made["tables/cross"]
    assert drawn[0].get_suptitle().replace("\n", " ") == "Over training; not run: ViT-Mini"
    assert len(drawn[0].axes) == 3  # of main_audit alone
    plt.close("all")
