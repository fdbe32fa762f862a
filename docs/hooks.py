"""What the site shows of the repository beside ``docs``: files that pages link to come along.

Links in the pages are those of a checkout (``../examples/own_job.py``), so that they also work
where the files are read without the site; here they become links within the site. Examples of
docstrings are set as code.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import griffe
from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PAGES = {"changelog.md": "CHANGELOG.md", "traces/README.md": "traces/README.md"}
"""Pages of the site that lie elsewhere in the repository."""
LINK_OUT = re.compile(r"\]\(\.\./((?!README\.md)[^)#]+\.\w+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie elsewhere, and every file outside of ``docs`` that a page links to."""
    linked = {
        target
        for page in files.documentation_pages()
        for target in LINK_OUT.findall(page.content_string)
        if (ROOT / target).is_file()
    }
    for name, source in {**{each: each for each in sorted(linked)}, **PAGES}.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turn links of a checkout into links of the site."""
    place = page.file.src_uri
    if place == "changelog.md":
        return markdown.replace("](docs/", "](")
    if place.startswith("traces/"):
        return markdown.replace("](../docs/", "](../")
    return markdown.replace("](../README.md", "](index.md").replace("](../", "](")


class Examples(griffe.Extension):
    """Puts the heading that numpy's convention asks for before examples that stand without one."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of *obj*, where it has one with examples."""
        if obj.docstring and "\nExamples\n" not in obj.docstring.value:
            before, prompt, after = obj.docstring.value.partition(">>> ")
            if prompt:
                obj.docstring.value = f"{before}Examples\n--------\n{prompt}{after}"
