"""Whether LaTeX would compile, as far as a reader of its text can say."""

import re

TOKEN = re.compile(r"\\(begin|end)\{(\w+\*?)\}|\\([a-zA-Z]+|.)|([{}$&#~^_])")


def check_latex(text):
    """Braces, mathematics and environments are balanced, special characters stand where they may, rows are full."""
    depth, math, open_environments = 0, False, []
    for line in text.splitlines():
        if line.startswith("%"):
            continue
        assert not re.search(r"(?<!\\)(\\\\)*%", line.removesuffix("%"))  # at its end it hides the line break
        for kind, environment, _, special in TOKEN.findall(line):
            if kind == "begin":
                open_environments.append(environment)
            elif kind == "end":
                assert open_environments.pop() == environment
            depth += {"{": 1, "}": -1}.get(special, 0)
            math ^= special == "$"
            assert depth >= 0 and special not in ("#", "~") and (math or special not in ("^", "_"))
            assert special != "&" or open_environments[-1:] == ["tabular"]
        assert not math
    assert not open_environments and depth == 0
    text = re.sub(r"\\begin\{tabular\}\[[tb]\].*?\\end\{tabular\}", "a cell of several lines", text)
    for body in re.findall(r"\\begin\{tabular\}\{@\{\}(\w+)@\{\}\}(.*?)\\end\{tabular\}", text, flags=re.DOTALL):
        lines = [line for line in body[1].splitlines() if line.endswith(r"\\")]
        assert len(lines) > 1 and {len(re.findall(r"(?<!\\)&", line)) + 1 for line in lines} == {len(body[0])}
