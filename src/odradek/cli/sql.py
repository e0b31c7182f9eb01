"""`odradek sql`: a query over topics and archives."""

from typing import Annotated

from odradek.admin.access import Access
from odradek.cli.access import on_cluster
from odradek.cli.archive import Storage, failures_told, settings_of
from odradek.cli.arguments import key_value, time_ms_of
from odradek.cli.framework import Argument, BadParameter, Option
from odradek.cli.sql_output import Form, print_result

ArchivePath = Annotated[
    str | None,
    Option(
        "--archive", metavar="PATH", help="Read what is archived there, and from the topics only the rest."
    ),
]
ArchiveOnly = Annotated[bool, Option("--archive-only", help="Read nothing from topics; needs no cluster.")]
From = Annotated[
    str | None, Option("--from", metavar="TIME", help="Only records since then: ISO 8601, or like -1h.")
]
To = Annotated[str | None, Option("--to", metavar="TIME", help="Only records before then.")]
Schema = Annotated[
    list[str] | None,
    Option(
        "--schema",
        metavar="[TOPIC=]COLUMNS",
        help="The fields of JSON values, like 'id BIGINT, kind STRING' (default: found in the values); repeatable.",
    ),
]
Avro = Annotated[
    list[str] | None,
    Option("--avro", metavar="[TOPIC=]FILE", help="Values are Avro, by the schema in the file; repeatable."),
]
Registry = Annotated[
    str | None,
    Option(
        "--schema-registry",
        metavar="URL",
        help="Values are Avro that begins with the id of a schema of this registry, if it has the subject TOPIC-value.",
    ),
]


@on_cluster
def sql(
    cluster: Access,
    query: Annotated[str, Argument(metavar="QUERY", help="The query; topics are its tables.")],
    archive: ArchivePath = None,
    archive_only: ArchiveOnly = False,
    from_: From = None,
    to: To = None,
    schema: Schema = None,
    avro: Avro = None,
    registry: Registry = None,
    form: Annotated[Form, Option("--format", help="How to print the result.")] = Form.TABLE,
    storage: Storage = None,
) -> None:
    """Query topics, and their archives, in DuckDB's SQL.

    The tables are topics; names with dots or dashes are written in double quotes. A topic of JSON objects, or of Avro,
    has their fields as columns; every table has _key, _value (as text), _partition, _offset, _timestamp and _headers.
    A value that cannot be read as the type of its column is null there.

    Committed records up to now are read; without --from, all of them, into memory. Files can be joined:
    FROM 'customers.csv'.

    odradek sql "SELECT kind, count(*) FROM orders GROUP BY kind" --from -1h

    odradek sql 'SELECT * FROM "shop.orders" ORDER BY _timestamp DESC LIMIT 5' --format json
    """
    if archive_only and archive is None:
        raise BadParameter("--archive-only needs --archive")
    schemas, files = _by_topic("--schema", schema), _by_topic("--avro", avro)
    for both in schemas.keys() & files.keys():
        raise BadParameter(
            f"values of {both or 'all topics'} are JSON by --schema, and Avro by --avro: give one"
        )
    with failures_told():
        from odradek.sql.avro_values import schema_in
        from odradek.sql.query import run
        from odradek.sql.reading import TopicReader
        from odradek.sql.tables import Settings

        settings = Settings(
            archive,
            dict(map(key_value, storage or ())),
            None if from_ is None else time_ms_of(from_),
            None if to is None else time_ms_of(to),
            schemas,
            {name: schema_in(file) for name, file in files.items()},
            registry,
        )
        reader = None if archive_only else TopicReader(settings_of(cluster))
        result = run(query, reader, settings)
    print_result(result, form)


def _by_topic(option: str, texts: list[str] | None) -> dict[str, str]:
    """Sort the texts by topic; one without a topic is for all of them, under the empty name. Types have no equals
    sign.
    """
    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        topic, said = (name.strip(), value) if equals else ("", text)
        if topic in found:
            raise BadParameter(
                f"{option} is given twice for {topic or 'all topics'}: name the topic, TOPIC=…"
            )
        found[topic] = said
    return found
