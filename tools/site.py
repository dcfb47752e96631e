"""Hooks of mkdocs: README.md is the start of the site, and files outside of docs/ that a page links
to are pages, too.

Links are written for readers of the repository. These hooks make them lead to the site's pages:
``X`` for ``docs/X``, ``repository/X`` for any other file. Files that are not Markdown are shown as
code.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
START = "README.md"
ALSO = [
    START,
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "results/README.md",
    "reference/measured/README.md",
]
LINK = re.compile(r"(\]\()(?!\w+:|#)([^)#\s]+)")


def page_of(path: str) -> str:
    """Return the path of the site's page for a file of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return (
        "index.md" if path == START else f"repository/{path}{'' if path.endswith('.md') else '.md'}"
    )


def targets(path: str, text: str) -> Iterator[str]:
    """Yield the files of the repository that a Markdown file links to."""
    for _, link in LINK.findall(text):
        yield posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def as_page(path: str, text: str) -> str:
    """Return a file's text as a page whose links lead to pages of the site."""
    if not path.endswith(".md"):
        return f"# {path}\n\n```{Path(path).suffix[1:]}\n{text.rstrip()}\n```\n"
    here = posixpath.dirname(page_of(path))

    def link(match: re.Match[str]) -> str:
        (target,) = targets(path, match[0])
        return match[1] + posixpath.relpath(page_of(target), here or ".")

    return LINK.sub(link, text)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every file outside of docs/ that another page links to."""
    waiting = [*ALSO, *(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md"))]
    seen = set()
    while waiting:
        path = waiting.pop()
        if path in seen or not (ROOT / path).is_file():
            continue
        seen.add(path)
        if path.endswith(".md") or not path.startswith("docs/"):
            text = (ROOT / path).read_text(encoding="utf-8")
            waiting += targets(path, text) if path.endswith(".md") else []
            if not path.startswith("docs/"):
                files.append(File.generated(config, page_of(path), content=as_page(path, text)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to files outside of docs/ into links to their pages on the site."""
    in_docs = page.file.generated_by is None
    return as_page(os.path.join("docs", page.file.src_uri), markdown) if in_docs else markdown
