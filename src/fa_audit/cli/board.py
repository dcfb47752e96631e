"""`fa-audit board` and `draw`: show the project's runs and your own audits, without training."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from fa_audit.core.errors import AuditError
from fa_audit.core.provided import provided

_MEASURED = "configs/measured.yaml"
_BOARD = "configs/board.yaml"
_FIELD = "reference/field"  # the runs of this configuration
_KEY = (
    "rank: by accuracy; a run has the rank of the run above unless a paired t-test\n"
    "  over the seeds (5 %, Holm) finds it less accurate than some run of that rank;\n"
    "  none with a single seed\n"
    "margin: points over own frozen baseline, mean and 95 % interval over the seeds\n"
    "fires: {checks}; ? marks a borderline check\n"
    "cost: time of a training step divided by bp's; residual MLP, one CPU thread"
)


def board_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit board`."""
    # Do not log matplotlib's notes on fonts.
    parser.set_defaults(command=_board, log_level=logging.WARNING)
    _add_audits(parser, "your own audits, as JSON", f"{_FIELD}, the runs of docs/board.md")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="folder for board.csv, .md, .tex, .html, .pdf, .png, .svg; default: print the table",
    )


def draw_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit draw`."""
    parser.set_defaults(command=_draw, log_level=logging.WARNING)
    words = "your own audits, as JSON; without any, draw the figures and tables of --configfile"
    _add_audits(parser, words, "reference/measured, the runs of docs/reproduction.md")
    parser.add_argument(
        "--configfile", type=Path, metavar="FILE", help=f"the configuration; default {_MEASURED}"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        default=Path("drawn"),
        help="folder for the files; default ./%(default)s",
    )


def _add_audits(parser: argparse.ArgumentParser, words: str, default: str) -> None:
    add = parser.add_argument
    add("audits", type=Path, nargs="*", metavar="AUDIT", help=words)
    add(
        "--from",
        dest="folder",
        type=Path,
        metavar="DIR",
        help="folder with SETTING/audits.json, or a workflow's folder of results; default"
        f" {default}",
    )
    add(
        "--only",
        nargs="+",
        default=[],
        metavar="RUN",
        help="show only these runs, or runs of these methods; default all",
    )
    add(
        "--wide",
        action="store_true",
        help="draw figures 7 inches wide, for two-column pages; default 5.5 inches",
    )


def _board(options: argparse.Namespace) -> None:
    from fa_audit.documents.formats import to_text
    from fa_audit.experiments.config_file import load_config
    from fa_audit.protocol.checks import CHECKS
    from fa_audit.protocol.judge import FOUR
    from fa_audit.results.artefacts import board_of, write_shown
    from fa_audit.results.measured import measured_folder, read_measured
    from fa_audit.results.own_audits import append_audits, read_own
    from fa_audit.results.tables.board import board

    if options.wide and not options.output:
        raise AuditError("--wide: found without --output; expected with a figure to draw.")
    config, _ = load_config(provided(_BOARD))
    folder = measured_folder(options.folder or _FIELD)
    measured = read_measured(folder)
    if not options.folder:
        measured = measured.of(*config["tables"]["field"]["settings"])
    tidy = append_audits(measured.only(options.only), read_own(options.audits))
    labels = dict(config["labels"])
    if options.folder:
        # A setting of the same name there may be another network.
        labels = {name: text for name, text in labels.items() if name not in config["settings"]}
    if options.output:
        inputs = [*sorted(folder.glob("*/audits.json")), *options.audits]
        more = {"wide": options.wide, "labels": labels}
        print(*write_shown(board_of(tidy), inputs, options.output, more), sep="\n")
    else:
        checks = ", ".join(CHECKS[name].title for name in FOUR.checks)
        print(to_text(board(tidy, title="", labels=labels, narrow=True)))
        print(_KEY.format(checks=checks))


def _draw(options: argparse.Namespace) -> bool | None:
    from fa_audit.experiments.config_file import load_config
    from fa_audit.experiments.read_grid import read_grid
    from fa_audit.results.artefacts import KINDS, artefacts_from
    from fa_audit.results.measured import measured_folder

    if options.audits:
        return _draw_audits(options)
    folder = measured_folder(options.folder)
    config, line_of = load_config(provided(options.configfile or _MEASURED))
    grid = read_grid(config, KINDS, line_of)
    more = {"wide": True} if options.wide else {}
    if options.only:
        more["runs"] = options.only
    # Print only after the last figure or table: until then a progress bar is on the terminal.
    made = list(artefacts_from(config, grid, folder, options.output, more))
    drawn = 0
    for name, problem in made:
        if problem:
            print(f"fa-audit: not drawn: {name}: {problem}", file=sys.stderr)
        else:
            drawn += 1
            print(options.output / name)
    # With --only, some figures may have no run to show.
    needed = 1 if options.only else len(made)
    return drawn < needed


def _draw_audits(options: argparse.Namespace) -> None:
    from fa_audit.results.artefacts import shown_of_audits, write_shown
    from fa_audit.results.own_audits import read_own, user_audits

    if options.folder or options.configfile:
        raise AuditError(
            "draw: found AUDIT with --from or --configfile; give AUDIT or these options."
        )
    tidy = user_audits(read_own(options.audits)).only(options.only)
    absent = {
        "deep_cosine": "no audit has credits: the cosine by layer is not drawn",
        "own_frozen_acc": "no audit has a frozen baseline: accuracy against it is not drawn",
    }
    for column, text in absent.items():
        if not tidy.has(column):
            print(f"fa-audit: {text}.", file=sys.stderr)
    more = {"wide": options.wide}
    print(*write_shown(shown_of_audits(tidy), options.audits, options.output, more), sep="\n")
