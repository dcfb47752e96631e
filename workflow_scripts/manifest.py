"""Rule manifest: what every artefact contains and where it comes from."""

from _workflow import logged

from fa_audit.core.files import write_json
from fa_audit.results.verify import manifest

with logged(snakemake):
    write_json(snakemake.output.manifest, manifest(snakemake.input.origins))
