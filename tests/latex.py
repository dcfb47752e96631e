"""Whether LaTeX compiles: by pdflatex, where there is one, and as far as a reader of its text can
say.
"""

import re
import shutil
import subprocess

import pytest

TOKEN = re.compile(r"\\(begin|end)\{(\w+\*?)\}|\\([a-zA-Z]+|.)|([{}$&#~^_])")
ROWS = re.compile(r"\\midrule\n(.*?)\\bottomrule", re.DOTALL)
# The text of NeurIPS: 5.5 x 9 inches, 10 points.
DOCUMENT = r"""\documentclass[10pt]{article}
\usepackage[letterpaper,textwidth=5.5in,textheight=9in]{geometry}
\usepackage{booktabs,graphicx}
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
        line = re.sub(r"\\label\{tab:[\w-]+\}", "", line)
        for kind, environment, _, special in TOKEN.findall(line):
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
    for body in ROWS.findall(text):
        counts = {len(re.findall(r"(?<!\\)&", line)) for line in body.splitlines()}
        assert len(counts) == 1


def compile_latex(folder, *texts):
    """Compile texts, each on pages of its own, in a class like NeurIPS's.

    Returns:
        The problems that LaTeX tells: errors, lines and pages that are too full, references without
        a label.
    """
    if not shutil.which("pdflatex"):
        pytest.skip("no pdflatex: texlive-latex-recommended has it")
    labels = re.findall(r"\\label\{(.*?)\}", "".join(texts))
    assert len(labels) == len(set(labels))
    references = "".join(rf"\ref{{{label}}} " for label in labels)
    (folder / "t.tex").write_text(DOCUMENT % "\\clearpage\n".join([*texts, references]))
    options = ["-interaction=nonstopmode", "-output-directory", str(folder)]
    command = ["pdflatex", *options, str(folder / "t.tex")]
    for _ in range(2):
        log = subprocess.run(command, capture_output=True, cwd=folder).stdout.decode(
            errors="replace"
        )
    problems = r"^(?:!|Overfull|LaTeX Warning: (?:Reference|Float too|Label)).*"
    return re.findall(problems, log, flags=re.MULTILINE)
