"""State machines whose records are in internal topics: groups, offsets, transactions. Pure.

    runtime         a shard, which decides: records, responses, notes and effects
    runner          the loop around a shard of any kind; `journal`: its partition
    groups          the group coordinator; `classic/` and `consumer/` (KIP-848) are types of groups
    offsets         what groups have committed; `pending_offsets`: those of open transactions;
                    `offset_forms`: forms of requests and responses in other versions
    transactions/   the transaction coordinator and its effects

`services.coordination.groups` (on `services.coordination.shards`) finds the shard of a group. `coordinators.runner`
lets the pure coordinator decide, appends its records to its partition of `__consumer_offsets`, and sends the responses
and begins the effects once they are committed; it fires the coordinator's timers, and replays the log at start. Its
clock, timers and partition are passed in: the simulations in `tests/coordinators` run the same loop on virtual time.

`services.coordination.transactions` runs the coordinator of a transactional id on `__transaction_state`, like a
group's. The first Produce of a transaction to a partition waits until the partition's leader has asked the coordinator
(`services.coordination.verification`), which verifies the partition or adds it. EndTxn is decided once its record is
committed; then its effect is begun: `services.coordination.txn_markers` sends the markers to the leaders
(WriteTxnMarkers), and the transaction is complete once all are committed and the coordinator was told. All of these are
requests between brokers, also where one broker asks itself: then the message is handed to the same handler as it is,
and the response may be there at once (`services.coordination.peers`). A partition knows its open transactions and its
last stable offset (`storage.producers`), which ends what `read_committed` consumers get; Fetch names the aborted ones.
Offsets sent to a transaction are records in the group's partition with the producer's id. They are pending until the
group's coordinator has written the marker there (`coordinators.pending_offsets`). docs/TRANSACTIONS.md says what this
promises.

Not obvious:

- A verification is worth something only until a marker comes. Between the coordinator's response and the append the
  transaction may have ended; the late batch would open one that nobody ends, or join the next. So the log hands out
  the verification and forgets it when a marker is appended (`storage.producers.verification`), and offsets are
  appended in the turn of the event loop in which they were verified.
- Of the offsets of a partition, the last record wins, not the last marker (`coordinators.pending_offsets`):
  compaction keeps the last record of a key, and a loaded coordinator must know what the one before it knew.
- Effects of a coordinator are data (`coordinators.transactions.effects`): markers to write, a producer id to get. A
  decision carries them beside its records and responses, and the runner has them carried out once the records are
  committed, by the `services` class of that kind. The coordinator is told what became of them (`Runner.tell`), and
  decides again. A request that needs a producer id stays open meanwhile, and is refused like any other if the
  coordinator moves. See docs/decisions/0007-coordinator-effects-are-data.md.
- A kind of coordinator is a row (`serving.coordination.KINDS`): its key type in FindCoordinator, the internal
  topic, and the class in `services` that runs it. A type of group is an entry of `services.coordination.groups.TYPES`.
- Pure cores do not log, they note. A coordinator's decision carries notes, which the runner logs once the decision
  is in the log of its partition; lines about the controller's changes are derived from its records
  (`controller.changes`). Lines that a client caused go through `host.log_lines.counted`, and its strings through
  `wording.shown`. See docs/LOGGING.md.
"""
