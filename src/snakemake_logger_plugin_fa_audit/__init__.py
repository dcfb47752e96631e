"""Report a workflow to a person: one line per finished job, failures in brief, the sums of a dry
run.

Snakemake discovers the package by its name; profiles/default selects it with ``logger: fa-audit``.
The option ``--logger-fa-audit-plain`` prints Snakemake's own messages instead, which
.snakemake/log/ holds in any case.
"""

import sys
from dataclasses import dataclass, field
from logging import INFO, LogRecord

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent
from snakemake_interface_logger_plugins.settings import LogHandlerSettingsBase

from snakemake_logger_plugin_fa_audit.command_line import refuse
from snakemake_logger_plugin_fa_audit.failures import Failures
from snakemake_logger_plugin_fa_audit.progress import Progress, rule_and_job

PART, STOPPED = (
    "fa_audit",
    "stopped",
)  # of what the Snakefile logs for a reader: this attribute of a record
UNSEEN = "    (check individual jobs above for details)\n"
CHATTER = (
    "Assuming unrestricted shared filesystem usage.",
    "Exiting because a job execution failed.",
)

refuse(sys.argv)


@dataclass
class LogHandlerSettings(LogHandlerSettingsBase):
    """Options of the command line, each prefixed with ``--logger-fa-audit-``."""

    plain: bool = field(default=False, metadata={"help": "Print Snakemake's own messages."})


class LogHandler(LogHandlerBase):
    """Print progress to standard error, and a dry run to standard output, as Snakemake does."""

    writes_to_stream = True
    writes_to_file = False
    has_filter = False  # Snakemake's own: --quiet works
    has_formatter = False
    needs_rulegraph = False

    def __post_init__(self) -> None:
        self.stream = sys.stdout if self.common_settings.stdout else sys.stderr
        self.progress, self.failures = Progress(), Failures()
        self.running = False  # from here on Snakemake's messages are about its own work
        if not self.settings.plain:
            sys.excepthook = _interrupted_in_brief

    def emit(self, record: LogRecord) -> None:
        """Print what a record says to a reader, if anything."""
        try:
            for line in self.lines(record):
                print(line, file=self.stream, flush=True)
        except BrokenPipeError:
            pass
        except Exception:
            self.handleError(record)

    def lines(self, record: LogRecord) -> list[str]:
        """Return the lines to print for a record."""
        event, part = getattr(record, "event", None), getattr(record, PART, None)
        self.running |= event == LogEvent.WORKFLOW_STARTED
        if self.settings.plain:
            return [text] if (text := self.format(record)) and text != "None" else []
        if part == STOPPED:
            return self.failures.lines(record.getMessage())
        if part or (event is None and not self.running):
            text = record.getMessage()
            return [] if text.startswith(CHATTER) else [text]
        return self.lines_of_event(event, record)

    def lines_of_event(self, event: LogEvent | None, record: LogRecord) -> list[str]:
        """Return the lines for what happens while Snakemake works."""
        match event:
            case LogEvent.RUN_INFO:
                is_first = not self.progress.left  # a dry run has it twice
                self.progress.plan(record.stats, record.created)
                return [record.getMessage()] if is_first and self.common_settings.dryrun else []
            case LogEvent.JOB_INFO if record.output:  # a target has none
                self.progress.start(
                    record.jobid, rule_and_job(record.rule_name, record.wildcards), record.created
                )
            case LogEvent.JOB_FINISHED:
                return self.progress.finish(record.job_id, record.created)
            case LogEvent.JOB_ERROR | LogEvent.GROUP_ERROR:
                return [
                    line
                    for job in getattr(record, "job_error_info", [vars(record)])
                    for line in self.failures.add(
                        self.progress.give_up(job["jobid"]) or job["rule_name"], job["log"]
                    )
                ]
            case LogEvent.ERROR:
                return self.failures.error(record.getMessage())
            case LogEvent.DEBUG_DAG | LogEvent.SHELLCMD:
                return [self.format(record)]
            case None:
                return self.lines_of_message(record)
        return []

    def lines_of_message(self, record: LogRecord) -> list[str]:
        """Return a warning or an error as it is and, from Snakemake's chatter, why jobs run and
        that none has to.
        """
        text = record.getMessage().replace(UNSEEN, "")
        if text.startswith("Terminating processes"):
            self.failures.interrupted = True
            return ["fa-audit: stopping"]
        # A dry run has reasons, and a table that says whether nothing is to be done.
        told = "Reasons:" if self.common_settings.dryrun else "Nothing to be done"
        if text.startswith(told) or (record.levelno > INFO and not text.startswith(CHATTER)):
            return [text]
        return []


def _interrupted_in_brief(kind: type[BaseException], error: BaseException, trace: object) -> None:
    if issubclass(
        kind, KeyboardInterrupt
    ):  # while the jobs were planned: Snakemake itself catches it later
        print(
            "fa-audit: interrupted before the first job; run the same command again.",
            file=sys.stderr,
        )
    else:
        sys.__excepthook__(kind, error, trace)
