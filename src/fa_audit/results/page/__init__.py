"""The report as one page: facts (content), plots (charts), and the file (document, template, css,
js).
"""

import altair  # noqa: F401  before all else: where it is missing, the error names its extra and not that of pandas
