"""`${VAR}` in a pipeline's file: from a secrets file if the table `[secrets]` names one, else the environment.

There is no other templating. A variable that is not set is an error, `$${` stands for `${`, and a value whose
name says that it is secret must come from a variable: what is written in a file ends up in a repository.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from odradek.pipeline.file.document import Document, Key
from odradek.pipeline.file.errors import PipelineError, PipelineErrors

VARIABLE = re.compile(r"\$(\$\{)|\$\{([^}]*)\}")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SECRET_KEY = re.compile(
    r"(?i)(password|passwd|secret|secret[._-]?key|secret[._-]access[._-]key|account[._-]key|token|sasl\.jaas\.config"
    r"|ssl\.keystore\.key|credential|connection[._-]string|authorization)$"
)
SECRET_IN_URL = re.compile(r"(?i)[?;&](password|pwd)=(?!\$\{)[^;&]+")
SECRET_BEFORE_HOST = re.compile(r"^[a-z][a-z0-9+.-]*://[^/@:]*:(?!\$\{)[^/@]+@", re.IGNORECASE)
SECRETS = "secrets"


def substitute(document: Document, environ: Mapping[str, str]) -> Document:
    """The document with every variable replaced; all problems are reported together."""
    problems: list[PipelineError] = []
    secrets = _read_secrets(document, problems)

    def look_up(key: Key, match: re.Match[str]) -> str:
        escaped, name = match.groups()
        if escaped:
            return "${"
        if not NAME.fullmatch(name):
            raise document.error(key, f"'${{{name}}}' is not a variable: a name has letters, digits and _")
        if name in secrets:
            return secrets[name]
        if name in environ:
            return environ[name]
        raise document.error(key, f"the variable {name} is not set; set it in the environment or [secrets]")

    def walk(key: Key, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: walk((*key, name), inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [walk((*key, number), inner) for number, inner in enumerate(value)]
        if not isinstance(value, str):
            return value
        try:
            _refuse_literal_secret(document, key, value)
            return VARIABLE.sub(lambda match: look_up(key, match), value)
        except PipelineError as error:
            problems.append(error)
            return value

    values = {
        name: value if name in (SECRETS, "tests") else walk((name,), value)
        for name, value in document.values.items()
    }
    if problems:
        raise PipelineErrors(problems)
    return replace(document, values=values)


def _refuse_literal_secret(document: Document, key: Key, value: str) -> None:
    name = ".".join(str(part) for part in key)
    in_url = SECRET_IN_URL.search(value) or SECRET_BEFORE_HOST.search(value)
    if (SECRET_KEY.search(name) and "${" not in value) or in_url:
        raise document.error(
            key, "a secret does not belong in this file; write ${NAME}, and set NAME outside"
        )


def _read_secrets(document: Document, problems: list[PipelineError]) -> dict[str, str]:
    table = document.values.get(SECRETS, {})
    secrets: dict[str, str] = {}
    if not isinstance(table, dict):
        problems.append(
            document.error((SECRETS,), 'this must be a table: NAME = "file that contains the secret"')
        )
        return secrets
    for name, file in table.items():
        key = (SECRETS, name)
        if not isinstance(file, str):
            problems.append(document.error(key, "this must be the name of the file that contains the secret"))
            continue
        path = document.path.parent / Path(file).expanduser()
        try:
            secrets[name] = path.read_text().rstrip("\n")
        except OSError as error:
            problems.append(document.error(key, f"{path} cannot be read: {error.strerror}"))
            secrets[name] = ""
    return secrets
