"""Tests of what the file says about databases, functions, formats, Avro and requirements: no Spark, no server."""

import re
from pathlib import Path

import pytest

from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.file.errors import PipelineError
from odradek.pipeline.file.reading import load
from odradek.pipeline.file.sources import without_password
from odradek.pipeline.kinds.database.access import DatabaseAway, DatabaseRefused, RowsRefused
from odradek.pipeline.run.failures import Kind, classify

DOCS = Path(__file__).parents[2] / "docs"
SHOP = """\
[sources.orders]
topic = "orders"
format = "text"
[sinks.out]
from = "orders"
{}
"""
REQUIRED = """\
[sources.orders]
topic = "orders"
format = "text"
[transforms.good]
sql = "SELECT * FROM orders"
[transforms.good.require]
"it is there" = {}
[sinks.out]
from = "good"
console = true
"""


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        (
            'database = "mysql://db/shop"\ntable = "t"',
            r"must be a URL that begins with postgresql:// or sqlite:///",
        ),
        ('database = "sqlite:///shop.db"', r"sinks.out.database: give the table"),
        (
            'database = "sqlite:///shop.db"\ntable = "t"\nkey = "id"',
            r'sinks.out.key: this is for mode = "upsert"',
        ),
        (
            'database = "sqlite:///shop.db"\ntable = "t"\nmode = "upsert"',
            r"an upsert replaces rows by their key",
        ),
        (
            'database = "sqlite:///shop.db"\ntable = "t"\nmode = "update"',
            r"'update' is not one of append, upsert",
        ),
        (
            'database = "postgresql://shop:secret@db/shop"\ntable = "t"',
            r"a secret does not belong in this file",
        ),
        (
            'database = "postgresql://db/shop"\npassword = "x"\ntable = "t"',
            r"a secret does not belong in this file",
        ),
        ('function = "send"', r"'send' is not of the form package.module:function"),
        ('function = "a:send"\ntakes = "pandas"', r"'pandas' is not one of arrow, dataframe"),
        ('topic = "t"\nformat = "avro"\nregister = true', r"sinks.out.register: give registry"),
        (
            'topic = "t"\nformat = "avro"\nframing = "registry"',
            r"sinks.out.framing: .*give registry, its URL",
        ),
        ('topic = "t"\nformat = "avro"\nschema = "{{}}"\nschema_file = "f"', r"in a file, not both"),
        ('topic = "t"\nregistry = "http://localhost"', r"sinks.out.registry: there is no such key"),
    ],
)
def test_what_a_sink_may_not_say(write, sink, message):
    with pytest.raises(PipelineError, match=message):
        load(write(SHOP.format(sink.replace("{{", "{").replace("}}", "}"))), {})


def test_a_password_in_a_url_is_taken_out_of_it_and_never_shown(write):
    sink = 'database = "postgresql://shop:${SECRET}@db:5432/shop?sslmode=require"\ntable = "t"'
    pipeline = load(write(SHOP.format(sink)), {"SECRET": "p%40ss"})
    database = pipeline.sinks["out"].target.database
    assert database.url == "postgresql://shop@db:5432/shop?sslmode=require"
    assert database.password == "p@ss" and "p@ss" not in repr(pipeline.sinks) + str(database)


@pytest.mark.parametrize(
    ("given", "url", "password"),
    [
        ("postgresql://shop:a/b@db/shop", "postgresql://shop@db/shop", "a/b"),
        ("postgresql://shop:a@b@db/shop", "postgresql://shop@db/shop", "a@b"),
        ("postgresql://shop:a?b@db/shop", "postgresql://shop@db/shop", "a?b"),
        ("postgresql://:a@db/shop", "postgresql://@db/shop", "a"),
        ("postgresql://shop@db/shop?password=a%2Fb", "postgresql://shop@db/shop", "a/b"),
        (
            "postgresql://db:5432/s?user=me&password=a&sslmode=require",
            "postgresql://db:5432/s?user=me&sslmode=require",
            "a",
        ),
        ("postgresql://db:5432/shop", "postgresql://db:5432/shop", ""),
        ("sqlite:///shop.db", "sqlite:///shop.db", ""),
    ],
)
def test_a_password_anywhere_in_a_url(given: str, url: str, password: str):
    """The URL is kept in the checkpoint and named by messages."""
    assert without_password(given) == (url, password)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://localhost:8081/apis/a@b", "http://localhost:8081/apis/a@b"),
        ("https://shop:${SECRET}@registry/apis", "https://shop:a%2Fb@registry/apis"),
        ("https://registry", "https://registry"),
    ],
)
def test_a_registry_s_url(write, given: str, url: str):
    pipeline = load(
        write(SHOP.format(f'topic = "t"\nformat = "avro"\nregistry = "{given}"')), {"SECRET": "a/b"}
    )
    assert pipeline.sinks["out"].target.avro.registry == url


@pytest.mark.parametrize(
    "catalog",
    [
        '{ type = "rest", uri = "https://c", credential = "id:secret" }',
        '{ type = "rest", uri = "https://c", "header.Authorization" = "Bearer secret" }',
        '{ type = "sql", uri = "postgresql+psycopg://shop:secret@db/catalog" }',
        '{ type = "rest", uri = "https://c", "adls.connection-string" = "AccountKey=secret" }',
    ],
)
def test_a_catalog_s_secrets_do_not_belong_in_the_file(write, catalog: str):
    text = SHOP.format('table = "shop.orders"') + f"[storage]\ncatalog = {catalog}\n"
    with pytest.raises(PipelineError, match="a secret does not belong in this file"):
        load(write(text), {})


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('database = "sqlite:///shop.db"', r"give the table or the query to read"),
        ('database = "sqlite:///shop.db"\ntable = "t"\nquery = "q"', r"give the table or the query to read"),
        ('format = "rate"\nprovider = "Rate"', r"'Rate' is not of the form package.module:Class"),
        ("static = true", r"give exactly one of .*, or a format of Spark's"),
    ],
)
def test_what_a_source_may_not_say(write, source, message):
    text = SHOP.format("console = true").replace('topic = "orders"\nformat = "text"', source)
    with pytest.raises(PipelineError, match=message):
        load(write(text), {})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("5", r"'it is there' must be a condition in SQL"),
        ('{ action = "drop" }', r"'it is there' must be a condition in SQL"),
        ('{ condition = "a", action = "skip" }', r"'skip' is not one of dead_letter, drop, warn, fail"),
        ('{ condition = "a", acton = "drop" }', r"did you mean 'action'"),
        ('{ condition = "a", action = "dead_letter" }', r":7: .*there is no place for dead letters"),
    ],
)
def test_what_a_requirement_may_not_say(write, given, message):
    with pytest.raises(PipelineError, match=message):
        load(write(REQUIRED.format(given)), {})


def test_what_happens_if_a_requirement_does_not_say_it(write):
    letters = '[dead_letters]\npath = "dead"\n'
    for text, action in ((REQUIRED, "fail"), (REQUIRED + letters, "dead_letter")):
        pipeline = load(write(text.format('"a"')), {})
        assert pipeline.actions_of(pipeline.transforms["good"]) == {"it is there": action}


def test_unmet_requirements_are_counted_once_for_each_batch(write):
    checkpoint = Checkpoint(load(write(SHOP.format("console = true"), "pipe.toml"), {}))
    one = {"stage": "good", "requirement": "r", "action": "drop", "rows": 2}
    for batch in (0, 0, 1):
        checkpoint.add_unmet("sink", "out", batch, [one, one | {"action": "warn"}])
    assert checkpoint.unmet("sink", "out") == [one | {"rows": 4}, one | {"action": "warn", "rows": 4}]
    checkpoint.query("sink", "out").mkdir(parents=True)
    assert checkpoint.remove_query("sink", "out") and checkpoint.unmet("sink", "out") == []


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RowsRefused("no"), Kind.DATA),
        (DatabaseRefused("no"), Kind.PERMANENT),
        (DatabaseAway("no"), Kind.OTHER),
        ("PythonException: …\nodradek.pipeline.kinds.database.access.DatabaseAway: no\n\nJVM", Kind.OTHER),
        (
            "PythonException: …\nodradek.pipeline.kinds.database.access.DatabaseRefused: no\n\nJVM",
            Kind.PERMANENT,
        ),
    ],
)
def test_what_a_failure_of_a_database_means(error, kind):
    failure = classify(error)
    assert (failure.kind, failure.reason) == (kind, "no")


def test_the_pipelines_of_the_docs_are_good(write):
    """Whole ones; the parts of others are tried by the tests of what they show."""
    pages = [DOCS / "PIPELINES.md", *(DOCS / "pipelines").glob("*.md")]
    text = "".join(page.read_text() for page in pages)
    found = re.findall(r"^```toml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    blocks = [one for one in found if "[sinks." in one and "[sources." in one]
    assert len(blocks) == 5
    for block in blocks:
        assert load(write(block), {}).sinks


def test_every_task_of_the_docs_has_a_page_that_states_its_guarantee():
    section = (DOCS / "PIPELINES.md").read_text().split("\n## Tasks\n")[1].split("\n## ")[0]
    tasks = re.findall(r"\]\(pipelines/([\w-]+)\.md\) \|", section)
    assert sorted(tasks) == sorted(page.stem for page in (DOCS / "pipelines").glob("*.md"))
    for name in tasks:
        text = (DOCS / "pipelines" / f"{name}.md").read_text()
        assert "**Guarantee" in text, name
        assert "```toml" in text and "(../PIPELINES.md)" in text, name
