"""Records of topics, for people.

    reading    pages of records: the newest, from an offset, from a time; forward and back by cursors
    showing    keys and values as JSON, text, hex or Avro, cut to a size, never as HTML
    schemas    Avro schemas from a registry, by the id that a value begins with
    scanning   whole topics through filters, batch by batch; `child` is the process that does it
    searches   the searches that run in children: started, asked for what they found, cancelled
    sending    one record to a topic

Whatever is read is bounded: records, bytes and time of a page, records of a search.
"""
