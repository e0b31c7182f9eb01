"""Archives of topics: what they are, what to do next, and access to their tables. Crash points: docs/decisions/0012.

An archive is a directory or a bucket with one Delta table for each topic. A file has the rows of one partition from an
offset to an offset. Each commit adds files together with Delta transaction versions, one for each partition: the offset
up to which the partition is archived. So the table says by itself where an archiver goes on, and where the tail begins.

    layout      names of files, columns, what a file and a snapshot say
    planning    pure: which ranges to archive next, and which files to merge
    location    where a table is: a local directory, or storage that delta-rs knows by a URL
    tables      the only module that reads and writes Delta: open, read, commit, vacuum
    describing  a topic as a cluster shows it
    rows        files of rows: written, merged, and read in order

The processes are in `archiving`; Spark reads archives by `odradek.spark`.
"""
