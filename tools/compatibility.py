"""Writes the tables of docs/COMPATIBILITY.md from the table of APIs and the docstrings of the API modules.

    python tools/compatibility.py          # bring the document up to date
    python tools/compatibility.py --check  # say whether it is

Everything between the two marks is made here; the rest of the document is written by hand. What an API leaves out
stands in its module, after "Left out:", where whoever changes it sees it.
"""

import argparse
import ast
import sys
from importlib.util import find_spec
from pathlib import Path

from odradek.apis.row import Api, ListenerKind
from odradek.apis.table import BROKER, CONTROLLER, SERVED
from odradek.wire.messages.index import SCHEMAS

DOCUMENT = Path(__file__).parent.parent / "docs" / "COMPATIBILITY.md"
BEGIN = "<!-- made by tools/compatibility.py: begin -->"
END = "<!-- made by tools/compatibility.py: end -->"
LEFT_OUT = "Left out: "


def docstring(module: str) -> str:
    """Without importing it."""
    spec = find_spec(f"odradek.api.{module}")
    assert spec is not None and spec.origin is not None, module
    return ast.get_docstring(ast.parse(Path(spec.origin).read_text())) or ""


def one_line(text: str) -> str:
    return " ".join(text.split())


def summary(module: str) -> str:
    """Say what the API does: its docstring's first paragraph, without its name and number."""
    first = one_line(docstring(module).split("\n\n")[0])
    return first.partition("): ")[2]


def left_out(module: str) -> str:
    for paragraph in docstring(module).split("\n\n"):
        if paragraph.startswith(LEFT_OUT):
            return one_line(paragraph.removeprefix(LEFT_OUT))
    return ""


def versions(api: Api) -> str:
    text = (
        f"{api.min_version}–{api.max_version}" if api.max_version > api.min_version else str(api.max_version)
    )
    if api.advertised_min_version != api.min_version:
        text += f" (advertised from {api.advertised_min_version})"
    return text


def served(kind: ListenerKind) -> list[str]:
    rows = [
        f"| {key} | {api.name} | {versions(api)} | {summary(module)} | {left_out(module)} |"
        for key, api in sorted(SERVED[kind].items())
        if (module := api.modules[kind])
    ]
    return ["| key | API | versions | what it does | left out |", "|---|---|---|---|---|", *rows]


def not_served() -> str:
    names = [
        f"{schema.name} ({key})"
        for key, schema in sorted(SCHEMAS.items())
        if key not in {*SERVED[BROKER], *SERVED[CONTROLLER]}
    ]
    return ", ".join(names) + "."


def generated() -> str:
    lines = [
        BEGIN,
        "",
        f"## The {len(SERVED[BROKER])} APIs that are served to clients",
        "",
        "Versions are all those that Kafka 4 serves of an API.",
        "",
        *served(BROKER),
        "",
        f"## The {len(SERVED[CONTROLLER])} APIs on the controller's listener",
        "",
        "`controller.listener.names` says which listeners are the controller's. The replicas of the metadata quorum",
        "speak to each other there, and brokers to the active controller.",
        "",
        *served(CONTROLLER),
        "",
        "## APIs of Kafka that are not served",
        "",
        "They are not in the response to ApiVersions, and a client that sends one all the same is disconnected:",
        not_served(),
        "",
        END,
    ]
    return "\n".join(lines)


def up_to_date(document: str) -> str:
    """The document with its generated part made anew."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + generated() + after


def main() -> int:
    parser = argparse.ArgumentParser(description="Bring docs/COMPATIBILITY.md up to date.")
    parser.add_argument("--check", action="store_true", help="change nothing, fail if it is not up to date")
    options = parser.parse_args()
    document = DOCUMENT.read_text()
    wanted = up_to_date(document)
    if options.check and wanted != document:
        print("docs/COMPATIBILITY.md is out of date: run python tools/compatibility.py")
        return 1
    if not options.check:
        DOCUMENT.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
