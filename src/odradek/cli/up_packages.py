"""The packages that `odradek up --console` and `--secure` need, and that a plain installation does not have."""

from importlib.util import find_spec

OF_CONSOLE = ("jinja2", "starlette", "uvicorn")
OF_SECURITY = ("cryptography",)


def missing(*, console: bool, secure: bool) -> str:
    """Say which packages are not installed, and how to install them; empty if all are."""
    for is_wanted, option, packages, extra in (
        (console, "--console", OF_CONSOLE, "console"),
        (secure, "--secure", OF_SECURITY, "security"),
    ):
        absent = [name for name in packages if is_wanted and find_spec(name) is None]
        if absent:
            return f"{option} needs {', '.join(absent)}: install with pip install '.[{extra}]' in a clone of Odradek"
    return ""
