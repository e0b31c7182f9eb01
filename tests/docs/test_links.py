"""Links between the documents: each leads to a file and a heading that exist, and the index leads to every page."""

import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted({*ROOT.glob("*.md"), *DOCS.rglob("*.md")})
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")


def links(page: Path) -> Iterator[str]:
    text = CODE.sub("", FENCE.sub("", page.read_text()))
    for target in LINK.findall(text):
        if not re.match(r"[a-z]+:", target):
            yield target


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and the site make it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    text = unicodedata.normalize("NFKD", text).lower()
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", text).strip())


@cache
def anchors(page: Path) -> set[str]:
    return {slug(one) for one in re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{page.name} links to {target}"
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), (
                f"{page.name} links to {target}; there is {sorted(anchors(found))}"
            )


def test_pages_do_not_link_out_of_the_site_by_a_path() -> None:
    """docs/ is a site of its own: what is outside it would be a dead link there. `tools/site.py` brings the results."""
    strangers = [
        f"{page.name}: {target}"
        for page in DOCS.rglob("*.md")
        for target in links(page)
        if not (page.parent / target.partition("#")[0]).resolve().is_relative_to(DOCS)
        and not target.startswith(("../bench/results/", "../README.md"))
    ]
    assert strangers == []


def test_every_page_is_on_the_path() -> None:
    pages = [DOCS / "index.md", DOCS / "decisions" / "README.md", DOCS / "PIPELINES.md"]
    index = {(page.parent / target).resolve() for page in pages for target in links(page)}
    assert [
        page.name for page in DOCS.rglob("*.md") if page.resolve() not in index and page.name != "index.md"
    ] == []
    sections = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    named = {
        name
        for section in sections
        for value in section.values()
        for name in ([value], value)[type(value) is list]
    }
    on_the_site = {*DOCS.glob("*.md"), *DOCS.glob("pipelines/*.md")}
    assert named == {str(page.relative_to(DOCS)) for page in on_the_site} | {"tour.md"}  # the README


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """mkdocs builds it, which knows its own links; and nothing on its pages is fetched from elsewhere."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    result = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert result.returncode == 0, result.stdout + result.stderr
    page = (tmp_path / "index.html").read_text()
    assert re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(https?:[^"]*)"', page) == []
    assert (tmp_path / "results" / "peers.html").exists()
    assert 'href="tour.html"' in page
    tour = (tmp_path / "tour.html").read_text()
    assert 'href="CLI.html"' in tour and 'src="results/peers.png"' in tour
    assert [link for link in re.findall(r'(?:href|src)="([^"]*)"', tour) if "docs/" in link] == []
