"""Whether LaTeX compiles: by pdflatex, where there is one, and as far as a reader of its text can
say.
"""

import re
import shutil
import subprocess

import pytest

TOKEN = re.compile(r"\\(begin|end)\{(\w+\*?)\}|\\([a-zA-Z]+|.)|([{}$&#~^_])")
ROWS = re.compile(r"\\begin\{tabular\}\{@\{\}([lr]+)@\{\}\}(.*?)\\end\{tabular\}", re.DOTALL)
# The text of NeurIPS: 5.5 x 9 inches, 10 points.
DOCUMENT = r"""\documentclass[10pt]{article}
\usepackage[letterpaper,textwidth=5.5in,textheight=9in]{geometry}
\usepackage{%s}
\begin{document}
%s
\end{document}
"""


def check_latex(text):
    """Braces, mathematics and environments are balanced, special characters stand where they may,
    rows are full.
    """
    depth, math, open_environments = 0, False, []
    for line in text.splitlines():
        if line.startswith("%"):
            continue
        assert not re.search(r"(?<!\\)(\\\\)*%", line)
        for kind, environment, _, special in TOKEN.findall(
            re.sub(r"\\label\{tab:[\w-]+\}", "", line)
        ):
            if kind == "begin":
                open_environments.append(environment)
            elif kind == "end":
                assert open_environments.pop() == environment
            depth += {"{": 1, "}": -1}.get(special, 0)
            math ^= special == "$"
            assert depth >= 0 and special not in ("#", "~") and (math or special not in ("^", "_"))
            assert special != "&" or open_environments[-1].startswith("tabular")
        assert not math
    assert not open_environments and depth == 0
    text = re.sub(r"\\begin\{tabular\}\[[tb]\].*?\\end\{tabular\}", "a cell of several lines", text)
    for columns, body in ROWS.findall(text):
        lines = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert len(lines) > 1 and {len(re.findall(r"(?<!\\)&", line)) + 1 for line in lines} == {
            len(columns)
        }


def compile_latex(folder, *texts):
    """Compile texts, each on pages of its own, in a class like NeurIPS's with the packages that
    they name.

    Returns:
        The problems that LaTeX tells: errors, lines and pages that are too full, references without
        a label.
    """
    if not shutil.which("pdflatex"):
        pytest.skip(
            "no pdflatex: whether LaTeX compiles is only read (texlive-latex-recommended has it)"
        )
    packages = {name for text in texts for found in re.findall(r"\\usepackage\{(.*?)\}", text) for name in found.split(",")}  # noqa: E501  # fmt: skip
    labels = re.findall(r"\\label\{(.*?)\}", "".join(texts))
    assert len(labels) == len(set(labels))
    references = "".join(rf"\ref{{{label}}} " for label in labels)
    (folder / "t.tex").write_text(
        DOCUMENT % (",".join(sorted(packages)), "\\clearpage\n".join([*texts, references]))
    )
    command = [
        "pdflatex",
        "-interaction=nonstopmode",
        "-output-directory",
        str(folder),
        str(folder / "t.tex"),
    ]
    for _ in range(2):
        log = subprocess.run(command, capture_output=True, cwd=folder).stdout.decode(
            errors="replace"
        )
    return re.findall(
        r"^(?:!|Overfull|LaTeX Warning: (?:Reference|Float too|Label)).*", log, flags=re.MULTILINE
    )
