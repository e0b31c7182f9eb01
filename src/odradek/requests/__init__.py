"""From a frame to its handler, and the response back: everything about requests that is not about one API.

    conversation   the requests of one connection, in order and within bounds; `session`: the client
    dispatch       reads a request, finds its handler, responds if that fails; `registry`: the APIs that are served
    request        one request in flight; `services`: the parts of a broker that its handler works with
    turns, parts   how large requests share the event loop
    refusal        the response that refuses a whole request; `refused`, `watch` and `naming`: log lines
    fetch_sessions the partitions that a client fetches, kept between requests

Each API has its own module in `api/`, which is imported when a client first uses it.
"""
