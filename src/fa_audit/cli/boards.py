"""`fa-audit leaderboard`, `compare` and `draw`: measured runs and one's own audits, without
training.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from fa_audit.core.errors import AuditError
from fa_audit.core.provided import provided

MEASURED = "configs/measured.yaml"
FROM = "folder of tidy tables SETTING/runs.csv; default the project's reference/measured"
KEY = (
    "margin: accuracy minus that with frozen blocks, mean and 95 % interval over the seeds\n"
    "checks: {}; ? is borderline, in parentheses one that does not fire\n"
    "seconds: wall time of a training, in parentheses over that of bp; <= an upper bound, since other work ran beside\n"
    "it, with the ratio of single steps, timed in turn\n"
    "{}"
)


def leaderboard_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit leaderboard`."""
    parser.set_defaults(
        command=_board, compared=False, log_level=logging.WARNING
    )  # fonts are not news
    parser.add_argument(
        "audits", type=Path, nargs="*", metavar="AUDIT", help="JSON of audits of your own"
    )
    _add_from(parser)
    words = "write table and figure leaderboard.* and table claims.* there; default the terminal"
    parser.add_argument("--output", type=Path, metavar="DIR", help=words)
    _add_wide(parser)


def compare_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit compare`."""
    parser.set_defaults(command=_board, compared=True, output=None)
    parser.add_argument(
        "audits", type=Path, nargs="+", metavar="AUDIT", help="JSON of an audit, one for each seed"
    )
    _add_from(parser)


def draw_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit draw`."""
    parser.set_defaults(command=_draw, log_level=logging.WARNING)
    add = parser.add_argument
    words = "JSON of audits of your own; default none: the figures and tables of --configfile"
    add("audits", type=Path, nargs="*", metavar="AUDIT", help=words)
    add("--configfile", type=Path, metavar="FILE", help=f"the configuration; default {MEASURED}")
    _add_from(parser)
    words = "where files are written; default %(default)s"
    add("--output", type=Path, metavar="DIR", default=Path("drawn"), help=words)
    _add_wide(parser)


def _add_from(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--from", dest="folder", type=Path, metavar="DIR", help=FROM)
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="RUN", help="the rows to show; default all runs"
    )


def _add_wide(parser: argparse.ArgumentParser) -> None:
    words = "figures of 7 inches, for a page of two columns; default 5.5, for one of one"
    parser.add_argument("--wide", action="store_true", help=words)


def _board(options: argparse.Namespace) -> int:
    from fa_audit.documents.formats import to_text
    from fa_audit.results.artefacts import boards
    from fa_audit.results.measured import measured_folder, read_measured
    from fa_audit.results.own_audits import beside, read_own
    from fa_audit.results.standings import CHECKS_TEXT, learning_rates
    from fa_audit.results.tables.leaderboard import IN_A_TERMINAL, leaderboard

    folder = measured_folder(options.folder)
    measured = read_measured(folder).only(options.only)
    tidy, own = beside(measured, read_own(options.audits))
    if options.output:
        shown = {
            "leaderboard": ("Leaderboard", ("figures", "tables")),
            "claims": ("What sources claim", ("tables",)),
        }
        parts = [
            (section, kind, title, kind, tidy)
            for kind, (title, both) in shown.items()
            for section in both
        ]
        inputs = [*sorted(folder.glob("*/runs.csv*")), *options.audits]
        print(*boards(parts, inputs, options.output, {"wide": options.wide}), sep="\n")
        return 0
    if options.compared:
        from fa_audit.results.compare import comparison_text
        from fa_audit.results.standings import standing, with_margins

        others = standing(with_margins(measured))
        texts = [comparison_text(tidy, key, others) for key in own]
    else:
        texts = [to_text(leaderboard(tidy, title="", labels={}, columns=IN_A_TERMINAL))]
    print(*texts, KEY.format(CHECKS_TEXT, learning_rates(tidy, {})), sep="\n")
    return 0


def _draw(options: argparse.Namespace) -> int:
    from fa_audit.experiments.config_file import load_config
    from fa_audit.experiments.read_grid import read_grid
    from fa_audit.results.artefacts import artefacts_from
    from fa_audit.results.kinds import KINDS
    from fa_audit.results.measured import measured_folder

    if options.audits:
        return _draw_own(options)
    folder = measured_folder(options.folder)
    config, line_of = load_config(provided(options.configfile or MEASURED))
    problems: dict[str, list[str]] = {}
    more = {
        name: value for name, value in {"wide": options.wide, "runs": options.only}.items() if value
    }
    made = list(
        artefacts_from(config, read_grid(config, KINDS, line_of), folder, options.output, more)
    )
    for name, problem in made:  # after the line of progress
        if problem:
            problems.setdefault(problem, []).append(name)
        else:
            print(options.output / name)
    for problem, names in problems.items():
        print(f"fa-audit: not drawn: {', '.join(names)}: {problem}", file=sys.stderr)
    drawn = len(made) - sum(map(len, problems.values()))
    return (
        1 if problems and not (options.only and drawn) else 0
    )  # not every board has the rows that were asked for


def _draw_own(options: argparse.Namespace) -> int:
    from fa_audit.results.artefacts import boards, of_audits
    from fa_audit.results.own_audits import alone, read_own

    if options.folder or options.configfile:
        raise AuditError("draw: found AUDIT and --from or --configfile; expected one of them.")
    tidy = alone(read_own(options.audits))[0].only(options.only)
    if not tidy.has("deep_cosine"):
        print("fa-audit: no audit has credits: the cosine by layer is not drawn.", file=sys.stderr)
    if not tidy.has("own_frozen_acc"):
        print(
            "fa-audit: no audit has a frozen baseline: accuracy against it is not drawn.",
            file=sys.stderr,
        )
    print(
        *boards(of_audits(tidy), options.audits, options.output, {"wide": options.wide}), sep="\n"
    )
    return 0
