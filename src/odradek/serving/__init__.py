"""From a frame to its handler, and the response back: everything about requests that is not about one API.

    conversation   the requests of one connection, in order and within bounds; `session`: the client
    dispatch       reads requests from frames
    road           admits, authorizes and handles them; `registry` finds the handlers
    authorizer     who may do what; `access`: what of a request that leaves
    request        one request in flight; `reply`: its only exit
    services       what handlers work with: `cluster`, `partitions`, `coordination`, and the node itself
    turns          how large requests share the event loop
    refused, watch log lines about requests; `naming`: how they name them

Each API has its own module or package in `api/`, which is imported when a client first uses it, and its row in
`apis.table`.
"""
