"""`fa-audit leaderboard`, `compare` and `draw`: measured runs and one's own audits, without training."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from fa_audit.core.thresholds import DiagnosticThresholds

FROM = "folder of tidy tables SETTING/runs.csv; default the project's reference/measured"
FORMATS = ("csv", "md", "html", "pdf", "png")
KEY = (
    "margin: accuracy minus that with frozen blocks, mean and 95 % interval over the seeds\n"
    "checks: a growth, b gradient, c stability, d depth; ? is borderline, in parentheses one that does not fire\n"
    "seconds: wall time of a training, in parentheses over that of bp; upper bounds where other work ran beside it"
)


def leaderboard_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit leaderboard`."""
    parser.set_defaults(command=_leaderboard, log_level=logging.WARNING)  # fonts are no news
    parser.add_argument("audits", type=Path, nargs="*", metavar="AUDIT", help="JSON of audits of your own")
    _add_from(parser)
    help_text = f"write leaderboard.{{{','.join(FORMATS)}}} there; default the terminal"
    parser.add_argument("--output", type=Path, metavar="DIR", help=help_text)


def compare_parser(parser: argparse.ArgumentParser) -> None:
    """Define `fa-audit compare`."""
    parser.set_defaults(command=_compare)
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
    from fa_audit.core.origin import origin_of
    from fa_audit.documents.formats import to_text
    from fa_audit.results.measured import measured_folder, read_measured
    from fa_audit.results.own_audits import beside, read_own
    from fa_audit.results.standings import learning_rates
    from fa_audit.results.tables.files import write_formats
    from fa_audit.results.tables.leaderboard import IN_A_TERMINAL, leaderboard

    folder = measured_folder(options.folder)
    tidy, _ = beside(read_measured(folder), read_own(options.audits))
    words = {"title": "Leaderboard", "labels": {}}
    if not options.output:
        print(to_text(leaderboard(tidy, **words, columns=IN_A_TERMINAL)), KEY, learning_rates(tidy, {}), sep="\n")
        return 0
    from fa_audit.results.figures import style
    from fa_audit.results.figures.leaderboard import draw

    inputs = [*sorted(folder.glob("*/runs.csv")), *options.audits]
    origin = str(origin_of({"kind": "leaderboard"}, tidy.runs["digest"].dropna(), inputs))
    files = [options.output / f"leaderboard.{ending}" for ending in FORMATS]
    write_formats(leaderboard(tidy, **words), files[:3], origin, words["title"])
    figure = draw(tidy, **words, thresholds=DiagnosticThresholds())
    for path in files[3:]:
        style.save(figure, path, origin)
    print(*files, sep="\n")
    return 0


def _compare(options: argparse.Namespace) -> int:
    from fa_audit.results.compare import comparison_text
    from fa_audit.results.measured import measured_folder, read_measured
    from fa_audit.results.own_audits import beside, read_own
    from fa_audit.results.standings import learning_rates, standing, with_margins

    measured = read_measured(measured_folder(options.folder))
    tidy, own = beside(measured, read_own(options.audits))
    others = standing(with_margins(measured))
    print(*(comparison_text(tidy, key, others) for key in own), KEY, learning_rates(tidy, {}), sep="\n")
    return 0


def _draw(options: argparse.Namespace) -> int:
    from fa_audit.experiments.config_file import load_config
    from fa_audit.experiments.grid import read_grid
    from fa_audit.results.artefacts import artefacts_from
    from fa_audit.results.kinds import KINDS
    from fa_audit.results.measured import measured_folder

    folder = measured_folder(options.folder)
    config, line_of = load_config(options.configfile)
    problems: dict[str, list[str]] = {}
    for name, problem in artefacts_from(config, read_grid(config, KINDS, line_of), folder, options.output):
        if problem:
            problems.setdefault(problem, []).append(name)
        else:
            print(options.output / name)
    for problem, names in problems.items():
        print(f"fa-audit: not drawn: {', '.join(names)}: {problem}", file=sys.stderr)
    return 1 if problems else 0
