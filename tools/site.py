"""Add to docs/ for `make docs`, as a hook of mkdocs, what is elsewhere in the repository.

That is the README, as the page "A tour", and the results of benchmarks, which are beside their programs.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
TOUR = "tour.md"
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Any, config: Any) -> Any:
    files.append(File.generated(config, TOUR, content=tour((ROOT / "README.md").read_text())))
    for path in sorted(RESULTS.iterdir()):
        if path.suffix in (".md", ".png"):
            files.append(File.generated(config, f"results/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    return markdown.replace("](../bench/results/", "](results/").replace("](../README.md)", f"]({TOUR})")


def tour(readme: str) -> str:
    """Return the README with links that lead to pages of the site; what is not on the site is only named."""

    def led(link: re.Match[str]) -> str:
        mark, text, target = link.groups()
        if re.match(r"[a-z]+:|#", target):
            return link[0]
        for folder, page in (("docs/", ""), ("bench/results/", "results/")):
            if target.startswith(folder):
                path = page + target.removeprefix(folder)
                return f"{mark}[{text}]({path}README.md)" if path.endswith("/") else f"{mark}[{text}]({path})"
        return text

    return LINK.sub(led, readme.replace("# Odradek\n", "# A tour\n", 1))
