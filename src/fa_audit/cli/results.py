"""`fa-audit report` reports on audits; `scorecard` compares published numbers with audits."""

from __future__ import annotations

import argparse
from pathlib import Path

from fa_audit.core.files import check_output, write_text
from fa_audit.documents.writers import DOCUMENTS

_PAGE = "report.html"


def report_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit report`."""
    add = parser.add_argument
    parser.set_defaults(command=_report)
    add(
        "audits",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="audits as JSON, one file for each seed",
    )
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--format",
        choices=DOCUMENTS,
        default="markdown",
        help="format of the text; default %(default)s",
    )
    add(
        "--method",
        metavar="MODULE:CLASS",
        help="class of an unregistered method, to print its formula; default: print none",
    )
    add(
        "--output",
        type=Path,
        metavar="PATH",
        help=f"file to write; default: print the text, or write {_PAGE} with --html",
    )
    either.add_argument(
        "--html",
        action="store_true",
        help="write one HTML page on any number of runs; default: a text on one run",
    )


def scorecard_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit scorecard`."""
    add = parser.add_argument
    parser.set_defaults(command=_scorecard)
    add(
        "--from",
        dest="folder",
        type=Path,
        metavar="DIR",
        help="folder with SETTING/audits.json, or a workflow's folder of results; default: results/"
        " if results/tidy has audits, else reference/measured",
    )
    add(
        "--published",
        metavar="YAML",
        default="reference/published.yaml",
        help="the published numbers; default %(default)s",
    )
    add(
        "--output",
        type=Path,
        metavar="DIR",
        help="folder for scorecard.csv and .md; default: print the .md",
    )


def _report(options: argparse.Namespace) -> None:
    from fa_audit.core.registry import load
    from fa_audit.methods import METHODS

    # The report prints what a class declares, such as its formula, only if it was imported.
    if options.method:
        load("method", METHODS, options.method)
    path = options.output
    if options.html:
        from fa_audit.results.page.render import page
        from fa_audit.results.page.runs import read_runs

        path = path or Path(_PAGE)
        text = page(read_runs(options.audits))
    else:
        from fa_audit.results.reporting import report
        from fa_audit.results.seed_group import read_seeds

        text = DOCUMENTS[options.format](report(read_seeds(options.audits)))
    if path is None:
        print(text, end="")
        return
    check_output(path, options.audits)
    write_text(path, text)
    # Print the path, since the user may not know the default one.
    if options.html:
        print(path)


def _scorecard(options: argparse.Namespace) -> None:
    from fa_audit.experiments.published import read_published_file
    from fa_audit.results.measured import measured_folder, read_measured, settings_in
    from fa_audit.results.scorecard import read_explanations, scorecard
    from fa_audit.results.scorecard_texts import summary_line, to_markdown

    own = Path("results/tidy")
    if options.folder is None and settings_in(own):
        options.folder = own
    folder = measured_folder(options.folder)
    if options.output:
        check_output(options.output, [folder])
    published = read_published_file(options.published)
    rows = scorecard(published, read_measured(folder), read_explanations(folder, published))
    if options.output:
        text = options.output / "scorecard.md"
        write_text(text.with_suffix(".csv"), rows.to_csv(index=False))
        write_text(text, to_markdown(published, rows))
        print(f"{text}: {summary_line(rows)}")
    else:
        print(to_markdown(published, rows), end="")
