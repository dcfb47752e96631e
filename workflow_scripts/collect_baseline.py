"""Rule collect_baseline: what an audit needs to know of a frozen or shallow network."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from _workflow import logged

from fa_audit.files import write_json

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with logged(snakemake):
    sidecar = json.loads(Path(snakemake.input.sidecar).read_text(encoding="utf-8"))
    facts = {key: sidecar[key] for key in ("accuracy", "spec", "digest", "checkpoint_sha256")}
    write_json(snakemake.output.baseline, {"run": snakemake.wildcards.run} | facts)
