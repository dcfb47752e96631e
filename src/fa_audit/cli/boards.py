"""`fa-audit leaderboard`, `compare` and `draw`: measured runs and one's own audits, without training."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fa_audit.core.thresholds import DiagnosticThresholds

if TYPE_CHECKING:
    from fa_audit.results.tidy import Tidy

FROM = "folder of tidy tables SETTING/runs.csv; default the project's reference/measured"
TITLE, CLAIMS = "Leaderboard", "What sources claim"
FORMATS = ("csv", "md", "html", "pdf", "png")
KEY = (
    "margin: accuracy minus that with frozen blocks, mean and 95 % interval over the seeds\n"
    "checks: {}; ? is borderline, in parentheses one that does not fire\n"
    "seconds: wall time of a training, in parentheses over that of bp; upper bounds where other work ran beside it\n"
    "{}"
)


def leaderboard_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit leaderboard`."""
    parser.set_defaults(command=_leaderboard, compared=False, log_level=logging.WARNING)  # fonts are no news
    parser.add_argument("audits", type=Path, nargs="*", metavar="AUDIT", help="JSON of audits of your own")
    _add_from(parser)
    help_text = f"write leaderboard.{{{','.join(FORMATS)}}} and claims there; default the terminal"
    parser.add_argument("--output", type=Path, metavar="DIR", help=help_text)


def compare_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit compare`."""
    parser.set_defaults(command=_leaderboard, compared=True, output=None)
    parser.add_argument("audits", type=Path, nargs="+", metavar="AUDIT", help="JSON of an audit, one for each seed")
    _add_from(parser)


def draw_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit draw`."""
    parser.set_defaults(command=_draw, log_level=logging.WARNING)
    add = parser.add_argument
    default = Path("configs/measured.yaml")
    add("--configfile", type=Path, metavar="FILE", default=default, help="the configuration; default %(default)s")
    _add_from(parser)
    default = Path("drawn")
    add("--output", type=Path, metavar="DIR", default=default, help="where files are written; default %(default)s")


def _add_from(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--from", dest="folder", type=Path, metavar="DIR", help=FROM)


def _leaderboard(options: argparse.Namespace) -> int:
    from fa_audit.documents.formats import to_text
    from fa_audit.results.measured import measured_folder, read_measured
    from fa_audit.results.own_audits import beside, read_own
    from fa_audit.results.standings import CHECKS_TEXT, learning_rates
    from fa_audit.results.tables.leaderboard import IN_A_TERMINAL, leaderboard

    folder = measured_folder(options.folder)
    measured = read_measured(folder)
    tidy, own = beside(measured, read_own(options.audits))
    if options.output:
        _write_leaderboard(tidy, [*sorted(folder.glob("*/runs.csv")), *options.audits], options.output)
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


def _write_leaderboard(tidy: Tidy, inputs: Sequence[Path], folder: Path) -> None:
    from fa_audit.core.origin import origin_of
    from fa_audit.results.figures import style
    from fa_audit.results.figures.leaderboard import draw
    from fa_audit.results.tables.claims import claims
    from fa_audit.results.tables.files import write_formats
    from fa_audit.results.tables.leaderboard import leaderboard

    origin = str(origin_of({"kind": "leaderboard"}, tidy.runs["digest"].dropna(), inputs))
    files = [folder / f"leaderboard.{ending}" for ending in FORMATS]
    write_formats(leaderboard(tidy, title=TITLE, labels={}), files[:3], origin, TITLE)
    beside = [folder / f"claims.{ending}" for ending in FORMATS[:3]]
    write_formats(claims(tidy, title=CLAIMS, labels={}), beside, origin, CLAIMS)
    figure = draw(tidy, title=TITLE, labels={}, thresholds=DiagnosticThresholds())
    for path in files[3:]:
        style.save(figure, path, origin)
    print(*files, *beside, sep="\n")


def _draw(options: argparse.Namespace) -> int:
    from fa_audit.experiments.config_file import load_config
    from fa_audit.experiments.read_grid import read_grid
    from fa_audit.results.artefacts import artefacts_from
    from fa_audit.results.kinds import KINDS
    from fa_audit.results.measured import measured_folder

    folder = measured_folder(options.folder)
    config, line_of = load_config(options.configfile)
    problems: dict[str, list[str]] = {}
    made = list(artefacts_from(config, read_grid(config, KINDS, line_of), folder, options.output))
    for name, problem in made:  # after the line of progress
        if problem:
            problems.setdefault(problem, []).append(name)
        else:
            print(options.output / name)
    for problem, names in problems.items():
        print(f"fa-audit: not drawn: {', '.join(names)}: {problem}", file=sys.stderr)
    return 1 if problems else 0
