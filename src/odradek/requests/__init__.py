"""From a frame to its handler, and the response back: everything about requests that is not about one API.

    conversation   the requests of one connection, in order and within bounds; `session` says who asks
    dispatch       reads a request, finds its handler, answers for one that fails; `registry` says what is served
    request        one request in flight; `services`: the parts of a broker that its handler works with
    turns, parts   how large requests share the event loop
    refusal        the response that refuses a whole request; `refused`, `watch` and `naming`: what the log says
    fetch_sessions what a client fetches, kept from one Fetch to the next

Each API has a module of its own in `api/`, which is imported when a client first asks for it.
"""
