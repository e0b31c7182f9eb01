"""Lines of keys in TOML, and variables."""

from pathlib import Path

import pytest

from odradek.pipeline.file.document import parse
from odradek.pipeline.file.errors import PipelineError, PipelineErrors
from odradek.pipeline.file.variables import substitute

TEXT = '''\
# a comment with [brackets] and = signs
top = 1

[sources.orders]   # another
topic = "a # b = c"
"quoted.key" = 'x'
watermark = { column = "at", delay = "5 minutes" }
list = [
    1,  # one
    { inner = 2 },
    """a
    string = "x" ]
    """,
]
sql = """
SELECT 1
"""
dotted.name.deep = true

[[tests]]
name = "one"
given.orders = [
    { id = 1 },
    "raw",
]

[[tests]]
name = "two"
[tests.expect]
out = []
'''


def parsed(text: str):
    return parse(Path("pipe.toml"), text)


@pytest.mark.parametrize(
    ("key", "line"),
    [
        (("top",), 2),
        (("sources",), 4),
        (("sources", "orders", "topic"), 5),
        (("sources", "orders", "quoted.key"), 6),
        (("sources", "orders", "watermark", "delay"), 7),
        (("sources", "orders", "list", 1, "inner"), 10),
        (("sources", "orders", "list", 2), 11),
        (("sources", "orders", "sql"), 15),
        (("sources", "orders", "dotted", "name", "deep"), 18),
        (("tests", 0, "given", "orders", 1), 24),
        (("tests", 1, "name"), 28),
        (("tests", 1, "expect", "out"), 30),
        (("sources", "orders", "no such key"), 4),
    ],
)
def test_every_key_has_its_line(key, line):
    assert parsed(TEXT).line(key) == line


def test_every_key_of_the_values_has_a_line_of_its_own():
    document = parsed(TEXT)

    def walk(key, value):
        assert key in document.lines, key
        inner = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else []
        )
        for name, below in inner:
            walk((*key, name), below)

    for name, value in document.values.items():
        walk((name,), value)


def test_where_a_string_begins():
    assert parsed(TEXT).value_lines["sources", "orders", "sql"] == 16, "the line after the opening quotes"
    assert parsed('a = """x\ny"""').value_lines["a",] == 1


def test_carriage_returns_count_as_one_line():
    assert parsed("a = 1\r\nb = 2\r\n").line(("b",)) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 1\nb = \n", r"pipe.toml:2: this is not TOML: invalid value"),
        ("a = 1\na = 2", r"pipe.toml:2: this is not TOML: cannot overwrite a value"),
        ('a = "x', r"pipe.toml:1: this is not TOML"),
    ],
)
def test_text_that_is_not_toml(text, message):
    with pytest.raises(PipelineError, match=message):
        parsed(text)


def test_variables_are_replaced_everywhere_but_in_tests():
    document = parsed('a = "x-${ONE}"\nb = ["${TWO}", { c = "$${ONE}" }]\n[[tests]]\nname = "${ONE}"')
    values = substitute(document, {"ONE": "1", "TWO": "2"}).values
    assert values == {"a": "x-1", "b": ["2", {"c": "${ONE}"}], "tests": [{"name": "${ONE}"}]}


def test_a_variable_that_is_not_set_names_file_line_and_key():
    with pytest.raises(PipelineError, match=r"^pipe.toml:2: b: the variable NOPE is not set"):
        substitute(parsed('a = "${YES}"\nb = "${NOPE}"'), {"YES": ""})


def test_all_unset_variables_are_told_together():
    with pytest.raises(PipelineErrors) as raised:
        substitute(parsed('a = "${A}"\nb = "${B}"'), {})
    assert str(raised.value).count("\n") == 1


def test_secrets_come_from_files_and_never_stand_in_the_text(tmp_path):
    (tmp_path / "password").write_text("hush\n")
    path = tmp_path / "pipe.toml"
    document = parse(path, '[secrets]\nPASSWORD = "password"\n[kafka]\nsasl.password = "${PASSWORD}"')
    assert substitute(document, {"PASSWORD": "other"}).values["kafka"]["sasl"]["password"] == "hush"


@pytest.mark.parametrize(
    "line",
    [
        'password = "hush"',
        '"spark.hadoop.fs.s3a.secret.key" = "hush"',
        'sasl.jaas.config = "org… password=hush"',
        'jdbc = "jdbc:x:y?user=a&password=hush"',
    ],
)
def test_literal_secrets_are_refused(line):
    with pytest.raises(PipelineError, match="a secret does not belong in this file") as raised:
        substitute(parsed(f"[kafka]\n{line}"), {})
    assert "hush" not in str(raised.value) and "pipe.toml:2" in str(raised.value)
