"""Pack measured tables and published numbers into the package, so that boards work where there is no checkout."""

import lzma
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

FILES = (
    "benchmarks/costs.json",
    "config.yaml",  # of which the next selects settings
    "configs/measured.yaml",
    "reference/published.yaml",
    "reference/measured/explanations.yaml",
)
TABLES = {
    "reference/measured": ("runs", "layers", "work"),
    "reference/field": ("runs", "work"),
    "reference/field_cifar10": ("runs", "work"),
}
FOLLOWED = (  # settings whose trajectories a figure of configs/measured.yaml or the scorecard reads
    "as_published",
    "cifar100",
    "depth_ladder_d512",
    "depth_sweep_depth2",
    "early_epochs_epochs1",
    "early_epochs_epochs2",
    "early_snapshots",
    "main_audit",
    "main_audit_clipped",
    "monitor_clipped",
    "no_terminal_norm",
    "no_terminal_norm_clipped",
    "penalty_100_epochs",
    "penalty_epoch0",
    "penalty_sweep",
    "resmlp_d512",
    "student",
    "untrained",
)


class WithTables(build_py):
    """Put them into `fa_audit/provided`, tables compressed; `fa_audit.core.provided` finds them there."""

    def run(self) -> None:
        """Build the package; an editable installation reads the checkout."""
        super().run()
        if self.editable_mode:
            return
        tables = [
            path
            for root, names in TABLES.items()
            for name in names
            for path in Path(root).glob(f"*/{name}.csv")
        ]
        tables += [Path("reference/measured", setting, "trajectories.csv") for setting in FOLLOWED]
        for path in [*map(Path, FILES), *tables]:
            target, content = Path(self.build_lib, "fa_audit/provided", path), path.read_bytes()
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".csv":
                target, content = target.with_suffix(".csv.xz"), lzma.compress(content, preset=9)
            target.write_bytes(content)


setup(cmdclass={"build_py": WithTables})
