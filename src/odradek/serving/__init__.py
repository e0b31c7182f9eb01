"""Everything about requests that is not about one API: from a frame to its handler, and the response back.

    conversation   the requests of one connection, in order and within bounds; `session`: the client
    dispatch       reads requests from frames
    road           admits, authorizes and handles them; `registry` finds the handlers
    authorizer     who may do what; `access`: what of a request that leaves
    request        one request in flight; `reply`: its only exit
    services       what handlers work with: `cluster`, `partitions`, `coordination`, and the node itself
    turns          how large requests share the event loop
    quotas         how much clients may ask for; `conversation` keeps them to it
    refused, watch log lines about requests; `naming`: how they name them; `audit`: those about access

Each API has its own module or package in `api/`, which is imported when a client first uses it, and its row in
`apis.table`.

Not obvious:

- Requests take effect in order. A handler that is a coroutine blocks later requests of its connection; one that
  parks (Produce, Fetch, JoinGroup) has already taken effect and does not.
- There is one road to a handler, and one exit. Requests of connections, requests out of Envelopes, questions of a
  broker to itself and requests of the node's own parts all enter at `serving.road`: admit (is it served here?),
  authorize, handle as the row says, amend. Every response leaves through `serving.reply`, which amends it, logs and
  counts what it refuses, and sets the throttle time. `tests/test_layers.py` finds the one module that calls handlers,
  and `tests/serving/test_entrances.py` sends every API through all entrances.
- A handler takes what it needs. Its first parameter is a facet of `serving.services` (`cluster`, `partitions`,
  `coordination`, `node`), or `services` if it needs several; `serving.registry` goes by the parameter's name. An
  API that keeps something between requests (Fetch, its sessions) has a class `Handler`. Facets are frozen: settings
  that change are looked up (`ThisNode.config`).
- A node asks as itself. Its own requests have the principal `Node:<id>` (`model.node_caller`), in Envelopes too: it
  is never anonymous when it creates an internal topic. No login makes a principal of that type.
- Access is a column. A row names the operation and the kind of resource; the items of the request name the
  resources. Items that are denied are refused, the rest is handled, and the response has both (`serving.access`);
  of AddPartitionsToTxn nothing is attempted then. Where that is not all, the row names functions of the API's
  module. `access` chooses between kinds of access: Fetch and OffsetForLeaderEpoch (a replica or a consumer),
  CreateTopics (in the cluster, or each topic), FindCoordinator, InitProducerId, AddPartitionsToTxn, OffsetFetch,
  Metadata and DescribeTopicPartitions (named topics, or all: these two leave out what the caller may not see, in
  turns). `hide` takes that out of a response: OffsetFetch, ListGroups, ListTransactions, CreateTopics,
  DescribeTransactions, ConsumerGroupDescribe. Produce and Fetch have codecs of their own and ask for each topic, at
  each read.
- Nobody is asked while everybody may do everything. Without an authorizer (`serving.authorizer.AllowAll`) the road
  looks once for each request whether that is so. Responses of `serving.standard_authorizer` are
  remembered with the connection until its generation changes; a node's own requests are never denied. A forwarded
  request is authorized where it arrives, and again at the controller, as its client.
- No request blocks the event loop (`serving.turns`): work on many items is a generator that yields every few of
  them, runs for 10 ms per turn of the event loop, and continues in a later turn. Messages are read and written that
  way too, the frames of one read are handled for 10 ms, and requests on which a coordinator or the controller
  decides as a whole are cut into parts (`apis.items`). Whatever a generator looked up before a `yield` may be gone
  after it. A request of more than 200,000 array elements (Produce: 10,000 partitions) closes its connection. `make
  bench-stall` measures it.
- Requests are not timed one by one. `serving.watch` looks from time to time at the requests that wait: one that it
  sees twice is slow.
"""
