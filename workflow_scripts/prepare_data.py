"""Rule prepare_data: a data set as one file of arrays."""

from pathlib import Path
from typing import TYPE_CHECKING

from _workflow import logged

from fa_audit.core.registry import load
from fa_audit.data import DATASETS
from fa_audit.data.dataset import save_dataset

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with logged(snakemake):
    make = load("dataset", DATASETS, snakemake.wildcards.dataset)
    data_root = Path(snakemake.config.get("data_root", "data"))  # no parameter: the same data lie in another folder
    save_dataset(make(data_root.expanduser()), snakemake.output.data)
