"""The rules of a metadata quorum that hold whatever happens: R1 to R9 of the safety properties, checked as nodes act.

R1  at most one leader in each epoch
R2  epoch and vote are on disk before anything is said of them; a node's epoch never goes back; one vote in each epoch
R3  logs are equal below the high watermarks, byte by byte
R4  a new leader has everything that is committed
R5  the high watermark never goes back while a node lives, and a majority of the voters has what lies below it on disk
R6  the high watermark advances only over an entry of the leader's own epoch
R7  voter sets change by one voter, after the change before is committed, and after the leader has committed something
R8  a snapshot says what the log below its end says (`images`)
R9  a replica votes under its own identity alone: a wiped disk is another replica

Every check looks at one node and what it changed, so thousands of events cost little. A node has a `key`, a `raft`, and
a `store` whose `entries` are the batches in its log, oldest first; a log may have lost its beginning.
"""

from bisect import bisect_left

from odradek.errors import ErrorCode
from odradek.raft.messages import REQUESTS, FetchResponse, VoteResponse
from odradek.raft.roles import Leader
from odradek.raft.voters import ReplicaKey, VoterSet


class Broken(AssertionError):
    """A property does not hold."""


def require(holds, *what):
    """The words are put together only when they are needed."""
    if not holds:
        raise Broken(" ".join(map(in_words, what)))


def in_words(item):
    if isinstance(item, ReplicaKey):
        return f"{item.node_id}-{item.directory_id.int:x}"
    if type(item) in (list, tuple):
        return f"({', '.join(map(in_words, item))})"
    return str(item)


def base_offset(item):
    return item.batch.base_offset


def between(entries, first, end):
    """The batches from one offset up to another."""
    return entries[bisect_left(entries, first, key=base_offset) : bisect_left(entries, end, key=base_offset)]


def last_before(entries, offset):
    """The batch that holds the record before this offset, if the log still has it."""
    slot = bisect_left(entries, offset, key=base_offset) - 1
    return entries[slot] if slot >= 0 else None


class Invariants:
    def __init__(self, cluster):
        self.cluster = cluster
        self.leaders = {}  # epoch -> replica
        self.epochs = {}  # replica -> the highest epoch it was ever in
        self.votes = {}  # (replica, epoch) -> the candidate it voted for
        self.high_watermarks = {}  # replica -> in this life
        self.committed = []  # all that ever was, in order
        self.committed_end = 0
        self.committed_in = {}  # epoch of a leader -> the end of what it has committed
        self.elections = 0
        self.voters = cluster.static  # as last committed
        self.requests = {}

    def started(self, node):
        self.high_watermarks[node.key] = 0
        self.check(node)

    # What is said

    def sent(self, node, message):
        """Looked at before the message leaves: whatever it says must survive a crash."""
        body, election = message.body, node.store.election
        persisted = election.leader_epoch if election is not None else 0
        require(body.epoch <= persisted or body.epoch == 0, "R2:", message, "is said before it is on disk")
        if isinstance(body, VoteResponse) and body.is_granted:
            request = self.requests.get((message.receiver, message.sender, message.correlation_id))
            if request is not None and not request.is_pre_vote:
                self._check_granted(node, request, election)
        if isinstance(body, FetchResponse) and body.error is ErrorCode.NONE:
            leads = isinstance(node.raft.role, Leader) and node.raft.epoch == body.epoch
            require(leads, "P9:", message, "comes from a", node.role, "of epoch", node.raft.epoch)
        if isinstance(body, REQUESTS):
            self.requests[message.sender, message.receiver, message.correlation_id] = body

    def _check_granted(self, node, request, election):
        require(
            election is not None and election.voted == request.candidate,
            "R2:",
            node.key,
            "grants a vote that is not on its disk:",
            request,
        )
        first = self.votes.setdefault((node.key, request.epoch), request.candidate)
        require(first == request.candidate, "R2:", node.key, "votes twice in epoch", request.epoch)
        require(request.voter.names(node.key), "R9:", node.key, "votes as", request.voter)

    # What is done

    def check(self, node):
        raft = node.raft
        self._check_epoch(node, raft)
        self._check_vote(node)
        if isinstance(raft.role, Leader):
            if raft.epoch not in self.leaders:
                self.leaders[raft.epoch] = node.key
                self.elections += 1
                self._check_new_leader(node)
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
        """It has all that was committed in earlier epochs: of an election that was won late, a later leader knows more.
        What its log has lost at its beginning is in a snapshot: R8."""
        end = max((end for epoch, end in self.committed_in.items() if epoch < node.raft.epoch), default=0)
        require(node.store.end_offset >= end, "R4: leader", node.key, "lacks committed records")
        self._check_same("R4: leader", node, 0, end)

    def _check_same(self, what, node, first, end):
        entries = node.store.entries
        if entries:
            first = max(first, entries[0].batch.base_offset)
            same = between(entries, first, end) == between(self.committed, first, end)
            require(same, what, node.key, "has other records between", first, "and", end)

    def _check_commit(self, node, raft, before):
        high_watermark = raft.high_watermark
        if high_watermark > self.committed_end:
            self._check_new_commit(node, raft, high_watermark)
        self._check_same("R3:", node, before, high_watermark)

    def _check_new_commit(self, node, raft, high_watermark):
        leads = isinstance(raft.role, Leader)
        require(leads, "R3:", node.key, "commits", high_watermark, "ahead of any leader")
        self._check_majority(node, high_watermark)
        epoch = last_before(node.store.entries, high_watermark).batch.epoch
        require(epoch == raft.epoch, "R6: epoch", raft.epoch, "commits an entry of epoch", epoch)
        for item in between(node.store.entries, self.committed_end, high_watermark):
            self._check_voters(item)
            self.committed.append(item)
            self.commit(item)
        self.committed_end = self.committed_in[raft.epoch] = self.committed[-1].batch.end_offset

    def commit(self, item):
        """Tell whoever wants to know what a batch says once it is committed."""

    def _check_majority(self, node, high_watermark):
        """Check that it is on a majority of the voters that the leader's log names last, committed or not."""
        last, voters = last_before(node.store.entries, high_watermark), self._voters_of(node)
        have = [
            key
            for key in voters.keys
            if (store := self.cluster.store_of(key)) is not None
            and store.is_durable_below(high_watermark)
            and last_before(store.entries, high_watermark) in (last, None)
        ]
        require(
            len(have) >= voters.majority,
            "R5: only",
            have,
            "of",
            voters.keys,
            "have all below",
            high_watermark,
        )

    @staticmethod
    def _voters_of(node):
        for item in reversed(node.store.entries):
            for _, change in reversed(item.batch.changes):
                if isinstance(change, VoterSet):
                    return change
        return node.raft.voters  # from the static set, or from a snapshot

    def _check_voters(self, item):
        for _, change in item.batch.changes:
            if isinstance(change, VoterSet):
                require(change.is_one_change_from(self.voters), "R7:", self.voters, "became", change)
                self.voters = change

    def proposed(self, node, item):
        """A leader has appended this. The set that it begins its first epoch with is no change."""
        raft = node.raft
        if item.batch.base_offset == raft.role.epoch_start_offset:
            return
        if any(isinstance(change, VoterSet) for _, change in item.batch.changes):
            settled = raft.role.epoch_start_offset < raft.high_watermark
            require(settled, "R7: leader", node.key, "changes voters before it committed anything")
            for other in between(node.store.entries, raft.high_watermark, item.batch.base_offset):
                require(
                    not any(isinstance(change, VoterSet) for _, change in other.batch.changes),
                    "R7: leader",
                    node.key,
                    "changes voters while another change is under way",
                )
