"""Rule prepare_data: a data set as one file of arrays."""

from _workflow import logged

from fa_audit.data.dataset import prepare_data_file

with logged(snakemake):
    # Not a parameter of the rule, since moving the data must not make results stale.
    data_root = snakemake.config.get("data_root", "data")
    prepare_data_file(snakemake.wildcards.dataset, data_root, snakemake.output.data)
