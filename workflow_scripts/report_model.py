"""Rule report_model: the report of one external model, from its audit."""

from _workflow import logged

from fa_audit.core.files import write_text
from fa_audit.documents.document import to_markdown
from fa_audit.results.reporting import report
from fa_audit.results.seed_group import read_seeds

with logged(snakemake):
    write_text(snakemake.output.report, to_markdown(report(read_seeds([snakemake.input.audit]))))
