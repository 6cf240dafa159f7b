"""Links and names of files in all pages, also in those that are no part of the site: what they lead to exists. Nothing is loaded."""

from __future__ import annotations

import functools
import importlib.util
import re
import urllib.parse
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token
from myst_parser.slugs import github_slugify

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("benchmarks", "docs", "examples", "models", "tests")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
# The site's own pages have their links checked by `make docs`, too, but GitHub shows them as they are.
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
OUTSIDE = [name for name in NAMES if not name.startswith("docs/")]
# What commands write: it is no part of the sources.
WRITTEN = ("benchmarks/results/",)
# An anchor before a heading, as Sphinx writes it.
EXPLICIT = re.compile(r"^\(([\w-]+)\)=$", re.M)
ATTRIBUTE = re.compile(r"""\s(?:href|src|srcset)=["']([^"']+)["']""")


@functools.cache
def tokens(page: Path) -> list[Token]:
    """Returns the tokens of a page, those inside of paragraphs among them."""
    found = MarkdownIt("commonmark").enable("table").parse(page.read_text())
    return [inner for token in found for inner in (token, *(token.children or ()))]


def links(page: Path) -> list[str]:
    """Returns where a page's links and pictures lead to."""
    found = [str(token.attrs.get("href") or token.attrs.get("src")) for token in tokens(page) if token.type in ("link_open", "image")]
    return found + [link for token in tokens(page) if token.type.startswith("html") for link in ATTRIBUTE.findall(token.content)]


def anchors(page: Path) -> set[str]:
    """Returns the anchors of a page: those of its headings, and those that it names itself."""
    every = tokens(page)
    texts = [heading.children or () for at, heading in enumerate(every) if at and every[at - 1].type == "heading_open"]
    return {*EXPLICIT.findall(page.read_text()), *(github_slugify("".join([part.content for part in parts])) for parts in texts)}


def wrong(page: Path) -> list[str]:
    """Returns the relative links of a page that lead to nothing."""
    found = []
    for link in links(page):
        parts = urllib.parse.urlsplit(link)
        if parts.scheme:
            continue
        target = page.parent / urllib.parse.unquote(parts.path) if parts.path else page
        if not target.exists() or (parts.fragment and parts.fragment not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_to_files_and_headings_that_exist(name: str) -> None:
    assert wrong(ROOT / name) == []


def test_a_wrong_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("(named)=\n# A *title*: `code`\n")
    page = tmp_path / "page.md"
    right = ["other.md", "other.md#named", "other.md#a-title-code", "#own", "https://example.com/nothing", "mailto:a@b.c"]
    lost = ["nothing.md", "other.md#nothing", "#nothing", "pictures/nothing.png", "a%20b.md"]
    texts = [f"[text]({link})" for link in right + lost[:3]]
    page.write_text("\n\n".join(["## Own", *texts, f"| a |\n|---|\n| ![]({lost[3]}) |", f'<a href="{lost[4]}">x</a>']))
    assert links(page) == [*right, *lost] and wrong(page) == lost


@pytest.mark.parametrize("name", OUTSIDE)
def test_files_that_a_page_names_exist(name: str) -> None:
    """Those in code, from the folder of the sources."""
    named = [token.content for token in tokens(ROOT / name) if token.type == "code_inline"]
    files = [word for word in named if re.fullmatch(rf"(?:{'|'.join(FOLDERS)}|src|\.ci)/[\w./*]*(?:::\w+)?", word)]
    assert [file for file in files if file not in WRITTEN and not list(ROOT.glob(file.partition("::")[0].rstrip("/")))] == []


def test_modules_that_pages_run_exist() -> None:
    command = re.compile(rf"python[\d.]* -m ((?:{'|'.join(FOLDERS)})[.\w]*)")
    named = {(name, module) for name in NAMES for module in command.findall((ROOT / name).read_text())}
    assert len({module for _, module in named}) > 10
    assert [(name, module) for name, module in sorted(named) if importlib.util.find_spec(module) is None] == []
