"""Frames, and nothing of what is in them.

    transport    the seam: frames in, bytes and slices of files out; `states`: its legal moves; `moving`: who makes them
    security     how a connection is protected; `greeting`: what happens on it before its first request
    stream       a transport on a socket; `plaintext` leaves its bytes as they are, `transports` chooses by protocol
    tls          a transport that encrypts; `tls_session`: TLS without a socket; `line`: handshakes take turns
    output       what a transport sends, and how; `memory` and `pool`: what arriving frames may take
    server       accepts connections, within `bounds`; `address_rates`: the quotas of addresses;
                 `strangers`: what a log line says of those that speak otherwise
    channel      requests to another node; `link`: the same over connections that are made again
    network      both directions: real in `sockets`, on virtual time in `simulated` (`simulated_greeting`: its TLS)
    deadlines    many deadlines, one timer; `pages`: a little HTTP for those who watch a node

Not obvious:

- Frames are handled where they were read, in a buffer that the next read overwrites. A handler must be done with
  the frame when it returns, and the run of Produce requests when the read was handled (`Dispatcher.finish`); a
  frame that has to wait is copied (`Conversation._held`). A response that waits for its sync keeps no view of its
  request's frame.
- A connection has two halves that know little about each other. The transport (`net.stream`) knows sockets and
  frames; the conversation (`serving.conversation`) knows requests. Each is in an explicit state, whose legal moves
  are a table (`net.states`, `serving.conversation_states`); any other move is a bug of ours, and raises.
- A connection is greeted before it serves anybody (`net.greeting`). A transport may have a handshake of its own,
  and its receiver exists only after that; then a client on a listener with SASL is held to the few APIs that
  authenticate it (`serving.session`), and on a connection that we open `greet` of its security asks what it has to.
  Until that is over frames are at most 64 KiB, and time and number are bounded: those that stall are closed,
  further ones wait in the backlog. A link whose peer moves, or that is closed, ends its greeting.
- An output says what it can do (`net.output.Outlet`): send bytes, perhaps gather several parts, perhaps send a
  file. Where it cannot, parts go one by one, and files are read in pieces.
- TLS knows no socket (`net.tls_session`): what arrives is fed to it, and what it has encrypted is sent. So it never
  waits, and neither direction ever wants the other one. But it may have decrypted bytes while the socket is silent:
  whoever begins to read again asks it first (`TlsTransport._read_on`).
- Memory for requests is counted when bytes arrive (`net.memory`): a size that a client only announces costs
  nothing.
"""
