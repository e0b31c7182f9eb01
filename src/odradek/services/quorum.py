"""This node's replica of the metadata quorum, alive: timers, syncs, and messages to and from the others.

The core decides and its driver writes (`raft/`), `metadata.log` makes images of what is committed. Here is what they
have no hands for: a timer for the core's next deadline, a thread for syncs, links to the other nodes, and requests of
theirs that wait for the core's response. After whatever happens, `_settle` looks at what came of it: what is
committed is told first, then those who wait for it are answered.

The only voter has nobody to wait for, so it syncs in place: its changes are committed when they are written.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from odradek.errors import DamagedData, ErrorCode, KafkaError, ProtocolError
from odradek.host.interface import Host, Timer
from odradek.host.log_lines import counted
from odradek.host.metrics import Histogram
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import MetadataImage
from odradek.metadata.log import Membership, MetadataLog
from odradek.metadata.properties import MetaProperties
from odradek.net.link import Link
from odradek.net.network import Network
from odradek.raft import rpc
from odradek.raft.messages import REQUESTS, Message
from odradek.raft.messages import Request as Body
from odradek.raft.messages import Response as Answer
from odradek.raft.outgoing import Settings
from odradek.raft.ready import QuorumBroken, Unreachable
from odradek.raft.reconfiguration import UpdateVoter, VoterChange
from odradek.raft.roles import Follower, Leader, Progress
from odradek.raft.rpc import NodeAddress
from odradek.raft.view import QuorumView, ReplicaView
from odradek.raft.voters import Endpoint, ReplicaKey, VoterNode
from odradek.requests.request import Request
from odradek.services.calls import call
from odradek.storage.config import LogConfig
from odradek.storage.disk.files import Files
from odradek.storage.disk.sync import SyncTicket, sync_tickets
from odradek.wire.messages import update_raft_voter
from odradek.wire.messages.update_raft_voter import UpdateRaftVoterRequest

log = logging.getLogger(__name__)

FIRST_BOOTSTRAP_ID = -2  # servers that have not said yet who they are go by ids below -1
HAND_OVER_SECONDS = 1.0  # how long a leader that stops waits for the others to hear of it
RETRY_SECONDS = 0.2  # after a sync could not begin
UPDATE_PAUSE_SECONDS = 1.0

KRAFT_VERSION = 1


class QuorumConfig(NamedTuple):
    """What the configuration says of the quorum, and of this node's place in it."""

    is_alone: bool
    endpoints: tuple[Endpoint, ...]
    bootstrap: tuple[NodeAddress, ...]
    settings: Settings


class _Waiter(NamedTuple):
    offset: int
    epoch: int
    done: asyncio.Future[None]


class _Led(NamedTuple):
    """What this node has seen committed while it led."""

    epoch: int = -1
    offset: int = -1


class Listener(NamedTuple):
    """Who hears of what happens here."""

    committed: Callable[
        [Sequence[MetadataDelta]], None
    ]  # every change of the image after the one that is loaded
    active: Callable[[], None]  # this node has become the controller
    leader: Callable[[], None]  # another node leads than before
    failure: Callable[[str], None]  # why the node must stop


@dataclass
class _Told:
    """What was said last, so that it is not said again."""

    leader: tuple[int, int | None] | None = None
    logged_leader: tuple[int, int] | None = None
    image: MetadataImage | None = None
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
        network: Network,
        listener: Listener,
        sync_time: Histogram,
    ) -> None:
        self._host = host
        self._network = network
        self._files = files
        self._listener = listener
        self._sync_time = sync_time  # records each sync
        self._told = _Told()
        self._node = ReplicaKey(properties.node_id, properties.directory_id)
        self._cluster_id = properties.cluster_id
        self._client_id = f"node-{properties.node_id}"
        self._settings = config.settings
        self._know_nobody(config)
        self._do_nothing()
        self.log = MetadataLog.open(
            files, directory, properties, log_config, host.steady_ms(), self._membership(config)
        )

    def _know_nobody(self, config: QuorumConfig) -> None:
        """Where this node and the others are."""
        self._endpoints = config.endpoints
        self._bootstrap = dict(enumerate_down(config.bootstrap))
        self._addresses: dict[int, NodeAddress] = {}  # as others told them
        self._links: dict[int, Link] = {}

    def _do_nothing(self) -> None:
        """What is under way, and who waits for it."""
        self._waiting: dict[int, Request] = {}  # of others, not answered by the core yet, by our number
        self._last_number = 0
        self._waiters: deque[_Waiter] = deque()
        self._led = _Led()  # in the last epoch in which it did
        self._changed = asyncio.Event()  # the role, the leader or the image
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._timer: Timer | None = None
        self._timer_ms = 0
        self._syncing: asyncio.Task[None] | None = None  # what a thread does for us
        self._is_settling = False
        self._is_stopped = False
        self._is_updating = False  # the leader is being told where this node is

    def _membership(self, config: QuorumConfig) -> Membership:
        return Membership(
            is_alone=config.is_alone,
            endpoints=config.endpoints,
            bootstrap=tuple(self._bootstrap),
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
        """This node is the controller."""
        return self.log.is_active and not self._is_stopped

    @property
    def is_only_voter(self) -> bool:
        return self.log.is_only_voter

    @property
    def leader(self) -> tuple[int, NodeAddress | None] | None:
        """Who leads, and where it is, if that is known."""
        leader_id = self.log.leader_id
        return None if leader_id is None else (leader_id, self._address_of(leader_id))

    @property
    def node_id(self) -> int:
        return self._node.node_id

    @property
    def voter_addresses(self) -> dict[int, NodeAddress | None]:
        """Where each voter is, if that is known."""
        return {key.node_id: self._address_of(key.node_id) for key in self.log.raft.voters.keys}

    @property
    def is_caught_up(self) -> bool:
        """All that is committed is in the image, as of a moment ago. A leader knows that only of its own epoch's
        records, so one of them must be in."""
        raft, image = self.log.raft, self.log.image
        if raft.is_leader:
            return self.log.is_active
        role = raft.role
        return (
            isinstance(role, Follower)
            and image.epoch == role.epoch
            and image.offset + 1 >= role.leader_high_watermark
        )

    def describe(self) -> QuorumView:
        raft = self.log.raft
        role = raft.role
        if not isinstance(role, Leader):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "This node does not lead the quorum.")
        observers = [key for key in role.progress if not raft.voters.includes(key)]
        return QuorumView(
            leader_id=role.leader_id,
            epoch=role.epoch,
            high_watermark=self.log.high_watermark,
            voters=tuple(self._view_of(key, role) for key in raft.voters.keys),
            observers=tuple(self._view_of(key, role) for key in sorted(observers)),
            nodes=tuple(raft.voters),
        )

    def _view_of(self, key: ReplicaKey, role: Leader) -> ReplicaView:
        now_ms = self._host.now_ms()
        if key.names(self._node):
            return ReplicaView(key, self.log.end_offset, now_ms, now_ms)
        progress: Progress = role.progress_of(key)
        passed_ms = now_ms - self._host.steady_ms()  # times of the core are those of the steady clock
        fetched, caught_up = progress.fetched_ms, progress.caught_up_ms
        return ReplicaView(
            key,
            progress.end_offset,
            -1 if fetched is None else fetched + passed_ms,
            -1 if caught_up is None else caught_up + passed_ms,
        )

    # Life

    def start(self, endpoints: tuple[Endpoint, ...]) -> None:
        """The others can reach this node here from now on; it takes part."""
        self._endpoints = endpoints
        with self._happening():
            self.log.tick(self._host.steady_ms())

    async def caught_up(self) -> None:
        """Wait until the image holds all that is committed."""
        while not self.is_caught_up:
            await self.changed()

    async def changed(self) -> None:
        """Wait for the next change of the leader, of this node's role, or of the image."""
        await self._changed.wait()

    async def stop(self) -> None:
        """Hand over, if this node leads others."""
        if not self.is_only_voter and not self.log.failed:
            with self._happening():
                self.log.resign(self._host.steady_ms())
            deadline = self._host.monotonic() + HAND_OVER_SECONDS
            while not self.log.raft.may_stop and self._host.monotonic() < deadline:
                await asyncio.sleep(0.01)
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._fail_waiters(KafkaError(ErrorCode.NOT_CONTROLLER, "This node is stopping."))
        for task in self._tasks:
            if task is not self._syncing:  # nobody can stop the thread, and the log is closed only after it
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for link in self._links.values():
            link.close()

    # Decisions

    def appended(self) -> None:
        """Something was appended to the log, which the others and the disk have to hear of."""
        with self._happening():
            pass

    async def committed(self, offset: int, epoch: int) -> None:
        """Wait until what was appended here in this epoch is committed and applied. Raises NOT_CONTROLLER if that
        cannot be known any more, because this node has lost its lead."""
        if self._led.epoch == epoch and self._led.offset >= offset:
            return
        if not self.log.raft.is_leader or self.epoch != epoch or self._is_stopped:
            raise _lost_lead()
        waiter = _Waiter(offset, epoch, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        await waiter.done

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
        """A request of another replica. The response is sent when the core gives it: a fetch may be parked."""
        self._last_number += 1
        number = self._last_number
        self._waiting[number] = request
        request.on_abandoned = partial(self._abandon, number)
        sender = _sender_of(body)
        with self._happening():
            self.log.step(Message(sender, self._node.node_id, number, body), self._host.steady_ms())

    def _abandon(self, number: int) -> None:
        self._waiting.pop(number, None)

    def learn_address(self, node_id: int, address: NodeAddress) -> None:
        self._addresses[node_id] = address

    def _address_of(self, node_id: int) -> NodeAddress | None:
        if node_id <= FIRST_BOOTSTRAP_ID:
            return self._bootstrap.get(node_id)
        voter = self.log.raft.voters.get(node_id)
        if voter is not None and voter.endpoints and voter.endpoints[0].port:
            return NodeAddress(voter.endpoints[0].host, voter.endpoints[0].port)
        return self._addresses.get(node_id)

    def _send(self, message: Message) -> None:
        """The driver's way out. Nothing is sent in the middle of what happens here: a task does it."""
        body = message.body
        if isinstance(body, REQUESTS):
            self._begin(self._ask(message.receiver, message.correlation_id, body))
            return
        request = self._waiting.pop(message.correlation_id, None)
        if request is not None:
            leader, known = self.leader, None
            if leader is not None and leader[1] is not None and leader[0] == body.leader_id:
                known = leader[0], leader[1]
            request.answer(rpc.to_response(request.api_key, request.version, body, known))

    def _begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self._host.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    async def _ask(self, peer: int, correlation_id: int, body: Body) -> None:
        try:
            response, addresses = await self._call(peer, body)
        except (OSError, ProtocolError) as error:
            level = logging.DEBUG if isinstance(error, TimeoutError) else logging.INFO
            counted(
                log,
                level,
                str(peer),
                str(error),
                "the quorum cannot reach %s: %s",
                self._name_of(peer),
                error,
            )
            is_gone = isinstance(error, ConnectionRefusedError)
            with self._happening():
                self.log.unreachable(Unreachable(peer, correlation_id, is_gone), self._host.steady_ms())
            return
        if response.error is ErrorCode.INCONSISTENT_CLUSTER_ID:
            counted(
                log,
                logging.ERROR,
                str(peer),
                "cluster",
                "%s belongs to another cluster than this node, which belongs to cluster %s: check "
                "controller.quorum.bootstrap.servers, and meta.properties in the data directories of both",
                self._name_of(peer),
                self._cluster_id,
            )
        self._addresses.update(addresses)
        with self._happening():
            self.log.step(Message(peer, self._node.node_id, correlation_id, response), self._host.steady_ms())

    async def _call(self, peer: int, body: Body) -> tuple[Answer, rpc.Addresses]:
        address = self._address_of(peer)
        if address is None:
            raise OSError("its address is not known")
        request = rpc.to_request(body, self._endpoints)
        seconds = self._settings.request_seconds
        response = await call(
            self._link_to(peer), address, request.message, request.version, self._client_id, seconds
        )
        return rpc.from_response(request.api_key, request.version, response)

    def _link_to(self, peer: int) -> Link:
        link = self._links.get(peer)
        if link is None:
            link = self._links[peer] = Link(self._host, self._network)
        return link

    def _name_of(self, peer: int) -> str:
        address = self._address_of(peer)
        where = f" at {address.host}:{address.port}" if address is not None else ""
        return f"node {peer}{where}" if peer >= 0 else f"the bootstrap server{where}"

    # What comes of it

    @contextmanager
    def _happening(self, may_refuse: bool = False) -> Iterator[None]:
        """Around everything that happens to the log. With `may_refuse` the caller hears of what was not possible."""
        try:
            yield
        except (QuorumBroken, DamagedData) as error:
            self._fail(str(error))
            return
        except (KafkaError, OSError) as error:
            if self.log.failed:
                self._fail(str(error))
            elif not may_refuse:
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
        self._fail_waiters(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason))
        self._listener.failure(reason)

    def _settle(self) -> None:
        if self._is_stopped or self._is_settling:
            return
        self._is_settling = True
        try:
            committed = self.log.publish()
            if committed:
                self._listener.committed(committed)
            self._answer_waiters()
            self._maybe_sync()
            self._maybe_update_endpoints()
            if self.log.is_active and self._told.active_epoch != self.epoch:
                self._told.active_epoch = self.epoch
                self._listener.active()
                self._told.image = None  # which is news, too
        except (DamagedData, QuorumBroken) as error:
            self._fail(str(error))
            return
        finally:
            self._is_settling = False
        self._tell_changes()
        self._arm()

    def _answer_waiters(self) -> None:
        """An offset alone says nothing: after an election another leader's records may have it."""
        if self.log.raft.is_leader:
            self._led = _Led(self.epoch, self.log.image.offset)
        while self._waiters and self._led.epoch == self._waiters[0].epoch:
            if self._led.offset < self._waiters[0].offset:
                break
            _set(self._waiters.popleft().done)
        if self._waiters and (not self.log.raft.is_leader or self._waiters[0].epoch != self.epoch):
            self._fail_waiters(_lost_lead())

    def _fail_waiters(self, error: KafkaError) -> None:
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            if not waiter.done.done():
                waiter.done.set_exception(error)

    def _tell_changes(self) -> None:
        raft = self.log.raft
        leader = raft.epoch, raft.leader_id
        has_news = self._told.image is not self.log.image
        self._told.image = self.log.image
        if leader != self._told.leader:
            self._told.leader = leader
            has_news = True
            self._log_leader(*leader)
            self._listener.leader()
        if has_news:
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

    def _log_leader(self, epoch: int, leader_id: int | None) -> None:
        """A voter that only asks whether it could win an election has not lost its leader: that is not said again."""
        if leader_id is None or (epoch, leader_id) == self._told.logged_leader:
            return
        self._told.logged_leader = epoch, leader_id
        if leader_id == self._node.node_id:
            log.info("this node leads the metadata quorum in epoch %d", epoch)
        else:
            log.info("node %d leads the metadata quorum in epoch %d", leader_id, epoch)

    def _arm(self) -> None:
        """Set the timer for the core's next deadline, unless one is set for a time before it."""
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
            self._answer_waiters()
            return
        ticket = self.log.begin_sync()
        if ticket is None:
            self.log.settle()  # whatever rolled the log has synced it: the core only has to be told
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
        """A voter that is elsewhere than the voter set says lets the leader know, which writes it down."""
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
                seconds = self._settings.request_seconds
                link = self._link_to(leader[0])
                await call(link, leader[1], request, request.MAX_VERSION, self._client_id, seconds)
        except (OSError, ProtocolError) as error:
            log.debug("cannot tell the leader the address of this node: %s", error)
        await asyncio.sleep(UPDATE_PAUSE_SECONDS)  # what the leader did with it is in the log by then
        self._is_updating = False
        self.appended()

    def _update_request(self, voter: VoterNode) -> UpdateRaftVoterRequest:
        return UpdateRaftVoterRequest(
            self._cluster_id,
            self.epoch,
            *self._node,
            [update_raft_voter.Listener(*endpoint) for endpoint in voter.endpoints],
            update_raft_voter.KRaftVersionFeature(voter.min_kraft_version, voter.max_kraft_version),
        )


def enumerate_down(addresses: Sequence[NodeAddress]) -> Iterator[tuple[int, NodeAddress]]:
    return ((FIRST_BOOTSTRAP_ID - slot, address) for slot, address in enumerate(addresses))


def _sender_of(body: Body) -> int:
    for name in ("candidate", "replica"):
        key = getattr(body, name, None)
        if key is not None:
            node_id: int = key.node_id
            return node_id
    leader_id: int = body.leader_id  # type: ignore[union-attr]
    return leader_id


def _set(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def _lost_lead() -> KafkaError:
    return KafkaError(ErrorCode.NOT_CONTROLLER, "This node does not lead the metadata quorum any more.")
