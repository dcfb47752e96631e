"""The logger fa-audit, fed with records as Snakemake writes them."""

import io
import logging
import os
import shutil
import signal
import subprocess
from contextlib import suppress

import pytest
from projects import EXPERIMENT, PLAIN, command, copy_sources, own_library, wait_for, write_config
from snakemake_interface_logger_plugins.common import LogEvent
from snakemake_interface_logger_plugins.registry import LoggerPluginRegistry
from snakemake_interface_logger_plugins.tests import MockOutputSettings

from fa_audit.core.files import exclusive

ADVICE = "fa-audit: a job failed.\n  messages   x\n  to go on   again"
PLUGIN = LoggerPluginRegistry().get_plugin("fa-audit")


class Terminal:
    """A handler, a clock, and what was printed."""

    def __init__(self, *, dryrun: bool = False) -> None:
        common = MockOutputSettings()
        common.dryrun = dryrun
        self.handler = PLUGIN.log_handler(common, PLUGIN.settings_cls(plain=False))
        self.handler.stream = self.out = io.StringIO()
        self.now = 0.0
        self.log(event=LogEvent.WORKFLOW_STARTED)

    def log(self, text=None, level=logging.INFO, **extra) -> str:
        """Log a record; returns what that printed."""
        before = len(self.out.getvalue())
        record = logging.makeLogRecord({"msg": text, "levelno": level, "created": self.now} | extra)
        self.handler.emit(record)
        return self.out.getvalue()[before:]

    def plan(self, **stats):
        self.log(
            "Job stats: ...", event=LogEvent.RUN_INFO, stats=stats | {"total": sum(stats.values())}
        )

    def start(self, job, rule="train_network", **more):
        wildcards = {"setting": "demo", "run": "dfa", "seed": str(job)}
        record = {
            "jobid": job,
            "rule_name": rule,
            "wildcards": wildcards,
            "output": ["x"],
            "reason": "",
        } | more
        self.log(event=LogEvent.JOB_INFO, **record)

    def finish(self, job) -> str:
        return self.log("Finished jobid", event=LogEvent.JOB_FINISHED, job_id=job)

    def fail(self, job, log, died="exit status 1") -> str:
        self.log(
            f"RuleException:\nCalledProcessError in file x:\n{died}",
            logging.ERROR,
            event=LogEvent.ERROR,
        )
        return self.log("Error in rule", logging.ERROR, event=LogEvent.JOB_ERROR, jobid=job,
                        rule_name="train_network", log=[str(log)])  # fmt: skip


def test_a_finished_job_is_a_line_with_run_seed_setting_share_and_time_to_go():
    terminal = Terminal()
    terminal.plan(train_network=10, all=1)
    lines = []
    for job in range(0, 10, 2):  # two at a time, ten seconds each
        terminal.start(job)
        terminal.start(job + 1)
        terminal.now += 10
        lines += [terminal.finish(job), terminal.finish(job + 1)]
    terminal.start(99, "all", output=[])
    assert terminal.finish(99) == ""
    assert " ".join(lines[3].split()) == "36% 0:35 to go train network dfa seed 3 demo"
    assert [line.count("\n") for line in lines] == 10 * [1] and lines[-1].startswith("100%")
    assert "to go" not in lines[0]  # too early to say


def test_the_share_done_never_falls_and_is_whole_at_the_end_only():
    terminal = Terminal()
    terminal.plan(tidy=4, train_network=2, all=1)
    shares = []
    for job, (rule, seconds) in enumerate(
        4 * [("tidy", 1)] + 2 * [("train_network", 60)]
    ):  # longer than expected
        terminal.start(job, rule)
        terminal.now += seconds
        shares.append(int(terminal.finish(job).split("%")[0]))
    assert shares == sorted(shares) and shares[-1] == 100 and max(shares[:-1]) < 100


def test_snakemakes_chatter_is_left_out_and_warnings_are_not():
    terminal = Terminal()
    for text in ("Building DAG of jobs...", "Provided cores: 2", "Select jobs to execute..."):
        assert terminal.log(text) == ""
    assert terminal.log("careful", logging.WARNING) == "careful\n"
    assert terminal.log("Nothing to be done (all ...).") == "Nothing to be done (all ...).\n"
    assert terminal.log("verdicts", fa_audit="results") == "verdicts\n"


def test_failures_end_in_ten_lines_with_run_cause_and_command(tmp_path, monkeypatch):
    monkeypatch.setenv("FA_AUDIT_COMMAND", "make demo")
    terminal = Terminal()
    terminal.plan(train_network=9, all=1)
    for job in range(6):
        (tmp_path / f"{job}.log").write_text(
            f"2026-01-01 00:00:01,123  start\ntrain_network: bad {job}\n\n"
        )
        terminal.start(job)
    said = [terminal.fail(job, tmp_path / f"{job}.log") for job in range(4)]
    assert said[0] == "FAILED  train network dfa seed 0 demo: bad 0\n"
    assert "exit status 1" in terminal.fail(4, tmp_path / "absent.log")
    group = [{"jobid": 5, "rule_name": "train_network", "log": [str(tmp_path / "5.log")]}]
    assert "demo: bad 5" in terminal.log("x", event=LogEvent.GROUP_ERROR, job_error_info=group)
    end = terminal.log(ADVICE, fa_audit="stopped").splitlines()
    assert (
        len(end) <= 10
        and "6 jobs failed" in end[1]
        and end[2] == "  train network dfa seed 0 demo: bad 0"
    )
    assert "  and 4 more" in end and end[-2:] == ["  to go on   again", "             make demo"]
    assert (
        terminal.log("WorkflowError:\nAt least one job ...", logging.ERROR, event=LogEvent.ERROR)
        == ""
    )


def test_jobs_that_the_user_stopped_did_not_fail(tmp_path):
    terminal = Terminal()
    terminal.start(1)
    assert "stopping" in terminal.log(
        "Terminating processes on user request, this might take some time."
    )
    assert terminal.fail(1, tmp_path / "absent.log") == ""
    end = terminal.log(ADVICE, fa_audit="stopped").splitlines()
    assert len(end) <= 5 and end[1] == "fa-audit: stopped."


def test_a_job_that_a_signal_ended_is_not_among_the_failures(tmp_path):
    terminal = Terminal()
    for job in (1, 2):
        terminal.start(job)
    for died in (
        "died with <Signals.SIGTERM: 15>.",
        "returned non-zero exit status 143.",
    ):  # by itself, by its shell
        assert terminal.fail(1, tmp_path / "absent.log", died) == ""
    assert terminal.fail(2, tmp_path / "absent.log").startswith("FAILED")
    end = terminal.log(ADVICE, fa_audit="stopped").splitlines()
    assert (
        "a job failed" in end[1]
        and "seed 2" in end[2]
        and sum("seed 1" in line for line in end) == 1
    )


def test_a_dry_run_has_snakemakes_sums_once_and_its_reasons():
    terminal, stats = Terminal(dryrun=True), {"train_network": 4, "total": 4}
    said = [terminal.log("Job stats: 4", event=LogEvent.RUN_INFO, stats=stats) for _ in range(2)]
    assert said == ["Job stats: 4\n", ""]
    terminal.start(1, reason="Missing output files: a")
    reasons = "Reasons:\n    (check individual jobs above for details)\n    code"
    assert terminal.log(reasons) == "Reasons:\n    code\n"


@pytest.mark.parametrize("event", list(LogEvent))
def test_no_record_whatever_it_lacks_stops_the_logger(event, monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", False)
    Terminal().log("x", event=event)


BROKEN = """from fa_audit.methods.dfa import DFA


class Broken(DFA):
    def credits(self, *arguments, **options):
        raise ValueError("no credit today")
"""


@pytest.mark.slow
def test_a_failure_and_ctrl_c_through_snakemake_end_without_a_traceback(everything, tmp_path):
    folder = shutil.copytree(everything, tmp_path / "project")
    (folder / "mine.py").write_text(BROKEN)
    tiny = EXPERIMENT | {"runs": ["dfa", "mine:Broken"], "seeds": [1], "epochs": 5000}
    write_config(folder, {"settings": {"tiny": tiny}})
    targets = [
        f"results/checkpoints/tiny/{run}/seed1.safetensors" for run in ("mine:Broken", "dfa")
    ]
    call = [part for part in command(*targets, "--cores", "2") if part != PLAIN]
    process = subprocess.Popen(call, cwd=folder, env=own_library(folder), text=True, start_new_session=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    said = []
    with process:
        for line in process.stdout:
            said.append(line)
            if line.startswith("FAILED"):
                failed = len(said)
                os.killpg(process.pid, signal.SIGINT)
    assert "FAILED" in "".join(said), said
    assert process.wait() == 1 and len(said) - failed < 12 and "Traceback" not in "".join(said)
    assert (
        "train network mine:Broken seed 1 tiny: method 'mine:Broken': ValueError no credit today"
        in said[failed - 1]
    )
    log = folder / "results/logs/train_network/tiny/mine:Broken/seed1.log"
    assert "Traceback" in log.read_text()  # where the failure is looked for


STOPS = {
    "SIGTERM to Snakemake alone": (os.kill, signal.SIGTERM),  # the end of a container
    "SIGTERM to Snakemake and its jobs": (os.killpg, signal.SIGTERM),  # `timeout`, a batch system
    "SIGHUP to Snakemake alone": (os.kill, signal.SIGHUP),
    "SIGHUP to Snakemake and its jobs": (os.killpg, signal.SIGHUP),  # the end of a terminal
}


@pytest.mark.slow
@pytest.mark.parametrize("how", STOPS)
def test_whatever_stops_snakemake_stops_its_jobs_at_once_and_none_of_them_failed(tmp_path, how):
    folder = copy_sources(tmp_path / "project")
    write_config(
        folder,
        {"settings": {"tiny": EXPERIMENT | {"runs": ["dfa"], "seeds": [1, 2], "epochs": 50000}}},
    )
    targets = [f"results/checkpoints/tiny/dfa/seed{seed}.safetensors" for seed in (1, 2)]
    call = [part for part in command(*targets, "--cores", "2") if part != PLAIN]
    process = subprocess.Popen(call, cwd=folder, env=own_library(folder), text=True, start_new_session=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    try:
        for seed in (1, 2):
            wait_for(
                folder / f"results/logs/train_network/tiny/dfa/seed{seed}.log", "epoch 3/", process
            )
        send, number = STOPS[how]
        send(process.pid, number)
        said = process.communicate(timeout=30)[
            0
        ]  # which waits for every process that holds the pipe
    finally:
        with suppress(ProcessLookupError):  # nothing trains on after a failure
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 1 and "FAILED" not in said and "Traceback" not in said, said
    assert "fa-audit: stopped." in said.splitlines() and "seed 1" not in said, said
    for seed in (1, 2):
        with exclusive(folder / f"results/resume/tiny/dfa/seed{seed}.lock", wait=False):
            pass
