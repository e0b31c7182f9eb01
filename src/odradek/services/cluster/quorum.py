"""Runs this node's replica of the metadata quorum: timers, syncs, and messages to and from other nodes.

The core decides and its driver writes (`raft/`); `metadata.log` makes images of what is committed. This module adds
what they leave to the event loop: a timer for the core's next deadline, a thread for syncs, requests to the other nodes
(`quorum_peers`), and their requests that wait for the core's response. After every event, `_settle` acts on what
changed: it publishes what is committed, then answers those who wait for it (`quorum_waiters`).

The only voter has nobody to wait for, so it syncs in place: its changes are committed when they are written. It
exchanges no messages either, so what they look like on the wire (`raft.rpc`) is imported with the first of them.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.errors import DamagedData, ErrorCode, KafkaError, ProtocolError
from odradek.host.interface import Host, Timer
from odradek.host.log_lines import counted
from odradek.host.metrics import Histogram
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import MetadataImage
from odradek.metadata.log import Membership, MetadataLog
from odradek.metadata.properties import MetaProperties
from odradek.net.network import Dialer
from odradek.raft.address import NodeAddress
from odradek.raft.messages import NOT_SAID, REQUESTS, Message
from odradek.raft.messages import Request as Body
from odradek.raft.outgoing import Settings
from odradek.raft.ready import QuorumBroken, Unreachable
from odradek.raft.reconfiguration import UpdateVoter, VoterChange
from odradek.raft.roles import Follower
from odradek.raft.view import QuorumView, describe
from odradek.raft.voters import Endpoint, ReplicaKey, VoterNode, VoterSet
from odradek.services.cluster.foreign_nodes import warn_of_request, warn_of_response
from odradek.services.cluster.quorum_peers import QuorumPeers
from odradek.services.cluster.quorum_waiters import CommitWaiters
from odradek.serving.request import Request
from odradek.storage.config import LogConfig
from odradek.storage.disk.files import Files
from odradek.storage.disk.sync import SyncTicket, sync_tickets
from odradek.wording import why

if TYPE_CHECKING:
    from odradek.wire.messages.update_raft_voter import UpdateRaftVoterRequest

log = logging.getLogger(__name__)

HAND_OVER_SECONDS = 1.0  # how long a leader that stops waits for the others to learn of it
RETRY_SECONDS = 0.2  # after a sync could not begin
LASTING_SECONDS = 10.0  # a node that cannot be reached for longer is worth a line
UPDATE_PAUSE_SECONDS = 1.0

KRAFT_VERSION = 1


class QuorumConfig(NamedTuple):
    """The configuration of the quorum and of this node's place in it."""

    is_alone: bool
    endpoints: tuple[Endpoint, ...]
    bootstrap: tuple[NodeAddress, ...]
    settings: Settings


class Listener(NamedTuple):
    """Callbacks for events of the quorum."""

    committed: Callable[[Sequence[MetadataDelta]], None]  # every change after the image that was loaded
    active: Callable[[], None]  # this node has become the active controller
    leader: Callable[[], None]  # the leader has changed
    failure: Callable[[str], None]  # the node must stop, for this reason


@dataclass(slots=True, eq=False)
class _Told:
    """The state that was last reported, so that it is not reported again."""

    leader: tuple[int, int | None] | None = None
    logged_leader: tuple[int, int] | None = None
    image: MetadataImage | None = None
    is_caught_up: bool = False
    active_epoch: int = -1


class Quorum:
    def __init__(
        self,
        files: Files,
        directory: str,
        properties: MetaProperties,
        log_config: LogConfig,
        config: QuorumConfig,
        host: Host,
        dialer: Dialer,
        listener: Listener,
        sync_time: Histogram,
    ) -> None:
        self._host = host
        self._files = files
        self._listener = listener
        self._sync_time = sync_time  # records each sync
        self._told = _Told()
        self._node = ReplicaKey(properties.node_id, properties.directory_id)
        self._cluster_id = properties.cluster_id
        self._endpoints = config.endpoints
        self._peers = QuorumPeers(
            host,
            dialer,
            properties.node_id,
            config.bootstrap,
            config.settings.request_seconds,
            self._voters,
        )
        self._do_nothing()
        self.log = MetadataLog.open(
            files, directory, properties, log_config, host.steady_ms(), self._membership(config)
        )
        self._commits = CommitWaiters(self.log)

    def _do_nothing(self) -> None:
        """Work in progress, and who waits for it."""
        self._waiting: dict[int, Request] = {}  # of other nodes, awaiting the core's response, by our number
        self._last_number = 0
        self._changed = asyncio.Event()  # set when the role, the leader, the image or `is_caught_up` changes
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._unreachable: dict[int, float] = {}  # nodes that cannot be reached, since this time
        self._timer: Timer | None = None
        self._timer_ms = 0
        self._syncing: asyncio.Task[None] | None = None  # the sync that runs in a thread
        self._is_settling = False
        self._is_stopped = False
        self._is_updating = False  # this node is telling the leader its endpoints
        self._stuck_at = -1  # the end of the log at which an append failed last

    def _voters(self) -> VoterSet:
        return self.log.raft.voters

    def _membership(self, config: QuorumConfig) -> Membership:
        return Membership(
            is_alone=config.is_alone,
            endpoints=config.endpoints,
            bootstrap=self._peers.bootstrap_ids,
            settings=config.settings,
            kraft_version=KRAFT_VERSION,
            send=self._send,
        )

    # What it is

    @property
    def epoch(self) -> int:
        return self.log.epoch

    @property
    def is_active(self) -> bool:
        """This node is the active controller."""
        return self.log.is_active and not self._is_stopped

    @property
    def is_only_voter(self) -> bool:
        return self.log.is_only_voter

    @property
    def is_stuck(self) -> bool:
        """True if what the leader sent could not be appended, as on a full disk, and nothing was since: the image is
        old.
        """
        return self._stuck_at == self.log.end_offset

    @property
    def leader(self) -> tuple[int, NodeAddress | None] | None:
        """The leader's id, and its address if that is known; None if no leader is known."""
        leader_id = self.log.leader_id
        return None if leader_id is None else (leader_id, self._peers.address_of(leader_id))

    @property
    def node_id(self) -> int:
        return self._node.node_id

    @property
    def voter_addresses(self) -> dict[int, NodeAddress | None]:
        """The address of each voter, if it is known."""
        return {key.node_id: self._peers.address_of(key.node_id) for key in self.log.raft.voters.keys}

    @property
    def recorded_ports(self) -> dict[str, int]:
        """The ports of this voter's listeners, as the voter set has them; none if it is not a voter."""
        voter = self.log.raft.voters.get(self._node.node_id)
        if voter is None or voter.key != self._node:
            return {}
        return {endpoint.listener: endpoint.port for endpoint in voter.endpoints}

    @property
    def is_caught_up(self) -> bool:
        """The image has everything that was committed a moment ago. A leader knows what is committed only once a record
        of its own epoch is, and a follower once its leader has told it: its own snapshot may be of the same epoch, and
        old."""
        raft, image = self.log.raft, self.log.image
        if raft.is_leader:
            return self.log.is_active
        role = raft.role
        return (
            isinstance(role, Follower)
            and image.epoch == role.epoch
            and 0 <= role.leader_high_watermark <= image.offset + 1
        )

    def describe(self) -> QuorumView:
        return describe(self.log.raft, self.log.high_watermark, self._host.now_ms(), self._host.steady_ms())

    # Life

    def start(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Take part in the quorum. Other nodes can reach this one at these endpoints."""
        self._endpoints = endpoints
        with self._happening():
            self.log.tick(self._host.steady_ms())

    async def caught_up(self) -> None:
        """Wait until the image has everything that is committed."""
        while not self.is_caught_up:
            await self.changed()

    async def changed(self) -> None:
        """Wait for the next change of the leader, of this node's role, of the image, or of `is_caught_up`."""
        await self._changed.wait()

    async def stop(self) -> None:
        """Hand over the leadership, if this node leads others."""
        if not self.is_only_voter and not self.log.failed:
            with self._happening():
                self.log.resign(self._host.steady_ms())
            deadline = self._host.monotonic() + HAND_OVER_SECONDS
            while not self.log.raft.may_stop and self._host.monotonic() < deadline:
                await asyncio.sleep(0.01)
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._commits.close()
        for task in self._tasks:
            if task is not self._syncing:  # a thread cannot be cancelled, and the log is closed only after it
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._peers.close()

    # Decisions

    def appended(self) -> None:
        """Something was appended to the log: sync it, and answer the fetches that wait for it."""
        with self._happening():
            pass

    async def committed(self, offset: int, epoch: int) -> None:
        """Wait until what was appended here in this epoch is committed and applied. Raises NOT_CONTROLLER if this node
        has lost the leadership, so that the outcome is unknown."""
        await self._commits.committed(offset, epoch)

    async def change_voters(
        self, change: VoterChange, timeout_ms: int, ack_when_committed: bool = True
    ) -> None:
        with self._happening(may_refuse=True):
            offset, epoch = self.log.change_voters(change, self._host.steady_ms()), self.epoch
        if not ack_when_committed:
            return
        try:
            async with asyncio.timeout(max(timeout_ms, 1) / 1000):
                await self.committed(offset, epoch)
        except TimeoutError:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, "The change of the voters is written, but not committed yet."
            ) from None

    # Messages

    def handle(self, request: Request, body: Body) -> None:
        """A request from another replica. It is answered when the core responds: a fetch may be parked."""
        self._last_number += 1
        number = self._last_number
        self._waiting[number] = request
        request.on_abandoned = partial(self._abandon, number)
        sender = _sender_of(body)
        if body.cluster_id not in (NOT_SAID, self._cluster_id):
            warn_of_request(sender, request.caller.address, body.cluster_id, self._cluster_id)
        with self._happening():
            self.log.step(Message(sender, self._node.node_id, number, body), self._host.steady_ms())

    def _abandon(self, number: int) -> None:
        self._waiting.pop(number, None)

    def learn_address(self, node_id: int, address: NodeAddress) -> None:
        self._peers.learn({node_id: address})

    def _send(self, message: Message) -> None:
        """Called by the driver. A request is sent in a task, so that its response cannot arrive in the middle of this
        event."""
        body = message.body
        if isinstance(body, REQUESTS):
            self._begin(self._ask(message.receiver, message.correlation_id, body))
            return
        request = self._waiting.pop(message.correlation_id, None)
        if request is not None:
            from odradek.raft import rpc

            leader, known = self.leader, None
            if leader is not None and leader[1] is not None and leader[0] == body.leader_id:
                known = leader[0], leader[1]
            request.answer(rpc.to_response(request.api_key, request.version, body, known))

    def _begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self._host.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def _tell_unreachable(self, peer: int, error: Exception) -> None:
        """Nodes of a cluster start one after the other: only what lasts is told."""
        now = self._host.monotonic()
        lasts = now - self._unreachable.setdefault(peer, now) >= LASTING_SECONDS
        level = logging.INFO if lasts and not isinstance(error, TimeoutError) else logging.DEBUG
        name, reason = self._peers.name_of(peer), why(error)
        counted(log, level, name, reason, "the quorum cannot reach %s: %s", name, reason)

    async def _ask(self, peer: int, correlation_id: int, body: Body) -> None:
        try:
            response, addresses = await self._peers.ask(peer, body, self._endpoints)
        except (OSError, ProtocolError) as error:
            self._tell_unreachable(peer, error)
            is_gone = isinstance(error, ConnectionRefusedError)
            with self._happening():
                self.log.unreachable(Unreachable(peer, correlation_id, is_gone), self._host.steady_ms())
            return
        self._unreachable.pop(peer, None)
        if response.error is ErrorCode.INCONSISTENT_CLUSTER_ID:
            warn_of_response(self._peers.name_of(peer), self._cluster_id)
        self._peers.learn(addresses)
        with self._happening():
            self.log.step(Message(peer, self._node.node_id, correlation_id, response), self._host.steady_ms())

    # What comes of it

    @contextmanager
    def _happening(self, may_refuse: bool = False) -> Iterator[None]:
        """Wraps every event that changes the log. With `may_refuse`, errors are raised to the caller."""
        try:
            yield
        except (QuorumBroken, DamagedData) as error:
            self._fail(str(error))
            return
        except (KafkaError, OSError) as error:
            if self.log.failed:
                self._fail(str(error))
            elif not may_refuse:
                self._stuck_at = self.log.end_offset
                counted(
                    log,
                    logging.ERROR,
                    "",
                    str(error),
                    "the metadata log cannot continue, trying again: %s",
                    error,
                )
            if may_refuse:
                raise
        self._settle()

    def _fail(self, reason: str) -> None:
        log.critical("this node can no longer take part in the metadata quorum, stopping: %s", reason)
        self._commits.fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason))
        self._listener.failure(reason)

    def _settle(self) -> None:
        if self._is_stopped or self._is_settling:
            return
        self._is_settling = True
        try:
            committed = self.log.publish()
            if committed:
                self._listener.committed(committed)
            self._commits.answer()
            self._maybe_sync()
            self._maybe_update_endpoints()
            if self.log.is_active and self._told.active_epoch != self.epoch:
                self._told.active_epoch = self.epoch
                self._listener.active()
                self._told.image = None  # so that `_tell_changes` reports this, too
        except (DamagedData, QuorumBroken) as error:
            self._fail(str(error))
            return
        finally:
            self._is_settling = False
        self._tell_changes()
        self._arm()

    def _tell_changes(self) -> None:
        raft = self.log.raft
        leader = raft.epoch, raft.leader_id
        is_caught_up = self.is_caught_up
        has_news = self._told.image is not self.log.image or self._told.is_caught_up is not is_caught_up
        self._told.image, self._told.is_caught_up = self.log.image, is_caught_up
        if leader != self._told.leader:
            self._told.leader = leader
            has_news = True
            self._log_leader(*leader)
            self._listener.leader()
        if has_news:
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

    def _log_leader(self, epoch: int, leader_id: int | None) -> None:
        """Log each leader once: a voter that asks for pre-votes forgets its leader only for a moment."""
        if leader_id is None or (epoch, leader_id) == self._told.logged_leader:
            return
        self._told.logged_leader = epoch, leader_id
        if leader_id == self._node.node_id:
            log.info("this node leads the metadata quorum in epoch %d", epoch)
        else:
            log.info("node %d leads the metadata quorum in epoch %d", leader_id, epoch)

    def _arm(self) -> None:
        """Set the timer for the core's next deadline, unless it is set for an earlier time."""
        due_ms = self.log.raft.next_tick_ms
        if due_ms is None:
            return
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                return
            self._timer.cancel()
        self._timer_ms = due_ms
        delay_ms = max(due_ms - self._host.steady_ms(), 1)
        self._timer = self._host.call_later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        with self._happening():
            self.log.tick(self._host.steady_ms())

    # Syncing

    def _maybe_sync(self) -> None:
        if not self.log.wants_sync or self._syncing is not None or self.log.failed:
            return
        try:
            self._begin_sync()
        except KafkaError as error:
            if self.log.failed:
                self._fail(str(error))
                return
            # No descriptor is left.
            counted(log, logging.ERROR, "", "sync", "cannot sync the metadata log, trying again: %s", error)
            self._host.call_later(RETRY_SECONDS, self.appended)

    def _begin_sync(self) -> None:
        if self.is_only_voter:
            committed = self.log.settle()
            if committed:
                self._listener.committed(committed)
            self._commits.answer()
            return
        ticket = self.log.begin_sync()
        if ticket is None:
            self.log.settle()  # rolling the log has synced it: only the core has to be told
            self._host.call_soon(self.appended)
            return
        self._syncing = self._begin(self._sync(ticket))

    async def _sync(self, ticket: SyncTicket) -> None:
        began = self._host.monotonic()
        (error,) = await self._host.in_thread(sync_tickets, self._files, [ticket])
        self._sync_time.observe(self._host.monotonic() - began)
        self._syncing = None
        with self._happening():
            committed = self.log.complete_sync(ticket, error)
            if committed:
                self._listener.committed(committed)
        if error is not None:
            self._fail(f"the metadata log could not be synced: {error}")

    # Endpoints

    def _maybe_update_endpoints(self) -> None:
        """Have the leader correct this voter's endpoints if the voter set has others."""
        raft = self.log.raft
        voter = raft.voters.get(self._node.node_id)
        if not self._endpoints or voter is None or not raft.is_voter or voter.endpoints == self._endpoints:
            return
        if self._is_updating or raft.log.voters.kraft_version < KRAFT_VERSION or not self.is_caught_up:
            return
        if not raft.is_leader:
            self._is_updating = True
            self._begin(self._update_at_leader(VoterNode(self._node, self._endpoints)))
        elif raft.log.voters.last_offset < self.log.high_watermark:  # no other change is under way
            self.log.change_voters(
                UpdateVoter(VoterNode(self._node, self._endpoints)), self._host.steady_ms()
            )

    async def _update_at_leader(self, voter: VoterNode) -> None:
        leader = self.leader
        try:
            if leader is not None and leader[1] is not None:
                request = self._update_request(voter)
                await self._peers.call(leader[0], leader[1], request, request.MAX_VERSION)
        except (OSError, ProtocolError) as error:
            log.debug("cannot tell the leader the address of this node: %s", error)
        await asyncio.sleep(UPDATE_PAUSE_SECONDS)  # by then the log shows whether the leader accepted it
        self._is_updating = False
        self.appended()

    def _update_request(self, voter: VoterNode) -> "UpdateRaftVoterRequest":
        from odradek.wire.messages import update_raft_voter

        return update_raft_voter.UpdateRaftVoterRequest(
            self._cluster_id,
            self.epoch,
            *self._node,
            [update_raft_voter.Listener(*endpoint) for endpoint in voter.endpoints],
            update_raft_voter.KRaftVersionFeature(voter.min_kraft_version, voter.max_kraft_version),
        )


def _sender_of(body: Body) -> int:
    for name in ("candidate", "replica"):
        key = getattr(body, name, None)
        if key is not None:
            node_id: int = key.node_id
            return node_id
    leader_id: int = body.leader_id  # type: ignore[union-attr]
    return leader_id
