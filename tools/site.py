"""Add to docs/ for `make docs`, as a hook of mkdocs: the results of benchmarks, which are beside their programs."""

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

RESULTS = Path(__file__).resolve().parent.parent / "bench" / "results"


def on_files(files: Any, config: Any) -> Any:
    for path in sorted(RESULTS.iterdir()):
        if path.suffix in (".md", ".png"):
            files.append(File.generated(config, f"results/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    return markdown.replace("](../bench/results/", "](results/")
