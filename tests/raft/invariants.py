"""What must hold of a metadata quorum whatever happens: R1 to R7 of the safety properties, checked as nodes act.

R1  at most one leader in each epoch
R2  epoch and vote are on disk before anything is said of them; a node's epoch never goes back
R3  logs are equal below the high watermarks
R4  a new leader has everything that is committed
R5  the high watermark never goes back while a node lives, and a majority of the voters has what lies below it
R6  the high watermark advances only over an entry of the leader's own epoch
R7  voter sets change by one voter, after the change before is committed

Every check looks at one node and what it changed, so thousands of events cost little.
"""

from odradek.errors import ErrorCode
from odradek.raft.messages import REQUESTS, FetchResponse, VoteResponse
from odradek.raft.roles import Leader
from odradek.raft.voters import VoterSet


class Broken(AssertionError):
    """A property does not hold."""


def require(holds, *what):
    """The words are put together only when they are needed."""
    if not holds:
        raise Broken(" ".join(map(str, what)))


class Invariants:
    def __init__(self, cluster):
        self.cluster = cluster
        self.leaders = {}  # epoch -> node id
        self.epochs = {}  # node id -> the highest epoch it was ever in
        self.votes = {}  # (node key, epoch) -> the candidate it voted for
        self.high_watermarks = {}  # node id -> in this life
        self.committed = []  # all that ever was, in order
        self.committed_end = 0
        self.elections = 0
        self.voters = cluster.static  # as last committed
        self.requests = {}

    def started(self, node):
        self.high_watermarks[node.key] = 0
        self.check(node)

    def sent(self, node, message):
        """Looked at before the message leaves: whatever it says must survive a crash."""
        body, election = message.body, node.store.election
        persisted = election.leader_epoch if election is not None else 0
        require(body.epoch <= persisted or body.epoch == 0, "R2:", message, "is said before it is on disk")
        if isinstance(body, VoteResponse) and body.is_granted and not self._is_pre_vote(message):
            require(
                election is not None and election.voted is not None, "R2:", message, "without a vote on disk"
            )
        if isinstance(body, FetchResponse) and body.error is ErrorCode.NONE:
            leads = isinstance(node.raft.role, Leader) and node.raft.epoch == body.epoch
            require(leads, "P9:", message, "comes from a", node.role, "of epoch", node.raft.epoch)
        if isinstance(body, REQUESTS):
            self.requests[message.sender, message.receiver, message.correlation_id] = body

    def _is_pre_vote(self, message):
        request = self.requests.get((message.receiver, message.sender, message.correlation_id))
        return request is not None and request.is_pre_vote

    def check(self, node):
        raft = node.raft
        self._check_epoch(node, raft)
        self._check_vote(node)
        if isinstance(raft.role, Leader) and raft.epoch not in self.leaders:
            self.leaders[raft.epoch] = node.key
            self.elections += 1
            self._check_new_leader(node)
        if isinstance(raft.role, Leader):
            require(self.leaders[raft.epoch] == node.key, "R1: two leaders in epoch", raft.epoch)
        before = self.high_watermarks[node.key]
        if raft.high_watermark != before:
            require(raft.high_watermark > before, "R5: the high watermark of", node.key, "went back")
            self._check_commit(node, raft, before)
            self.high_watermarks[node.key] = raft.high_watermark
        require(
            node.store.end_offset >= raft.high_watermark, "R5:", node.key, "lacks what it calls committed"
        )

    def _check_epoch(self, node, raft):
        require(raft.epoch >= self.epochs.get(node.key, 0), "R2: the epoch of", node.key, "went back")
        self.epochs[node.key] = raft.epoch

    def _check_vote(self, node):
        election = node.store.election
        if election is not None and election.voted is not None:
            first = self.votes.setdefault((node.key, election.leader_epoch), election.voted)
            require(first == election.voted, "R2:", node.key, "voted twice in epoch", election.leader_epoch)

    def _check_new_leader(self, node):
        log = node.store.log
        require(
            log[: len(self.committed)] == self.committed, "R4: leader", node.key, "lacks committed records"
        )

    def _check_commit(self, node, raft, before):
        high_watermark = raft.high_watermark
        if high_watermark > self.committed_end:
            require(
                isinstance(raft.role, Leader),
                "R3:",
                node.key,
                "commits",
                high_watermark,
                "ahead of any leader",
            )
            self._check_majority(node, raft)
            epoch = node.store.log[node.store.slot(high_watermark - 1)].batch.epoch
            require(epoch == raft.epoch, "R6: epoch", raft.epoch, "commits an entry of epoch", epoch)
            for item in node.store.log[len(self.committed) :]:
                if item.batch.end_offset <= high_watermark:
                    self._check_voters(item)
                    self.committed.append(item)
            self.committed_end = self.committed[-1].batch.end_offset
        first, last = node.store.slot(before), node.store.slot(high_watermark - 1)
        same = node.store.log[first : last + 1] == self.committed[first : last + 1]
        require(same, "R3:", node.key, "has another log below", high_watermark)

    def _check_majority(self, node, raft):
        nodes = {item.key: item for item in self.cluster.nodes.values()}
        have = [
            key
            for key in raft.voters.keys
            if key in nodes
            and nodes[key].store.synced_offset >= raft.high_watermark
            and nodes[key].store.log[nodes[key].store.slot(raft.high_watermark - 1)]
            == node.store.log[node.store.slot(raft.high_watermark - 1)]
        ]
        require(
            len(have) >= raft.voters.majority,
            "R5: only",
            have,
            "of",
            raft.voters,
            "have all below",
            raft.high_watermark,
        )

    def _check_voters(self, item):
        for _, change in item.batch.changes:
            if isinstance(change, VoterSet):
                require(change.is_one_change_from(self.voters), "R7:", self.voters, "became", change)
                self.voters = change
