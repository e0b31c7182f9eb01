"""Many ACLs, and the decision about one question: may this principal, from this host, do this to that resource?

An index by principal, type of resource, pattern and host makes a decision cost what concerns the question, however many
ACLs there are: a lookup for the name, one for the wildcard, and one for each length of a prefix that the principal (or
`User:*`) has. It is changed in place, ACL by ACL.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

from odradek.acls.acl import EVERYBODY, THE_CLUSTER, WILDCARD, Acl
from odradek.acls.codes import IMPLIED_BY, Operation, Pattern, Permission, Resource
from odradek.acls.hosts import Network, is_in, network_of, one_way

K = TypeVar("K", int, str)
NOTHING: frozenset[int] = frozenset()


class Ruling(NamedTuple):
    is_allowed: bool
    acl: Acl | None = None  # the one that decides, if one does


class Rules:
    """ACLs, as they are now. If there is no ACL for a resource, `allows_unlisted` decides."""

    def __init__(self, acls: Iterable[Acl] = (), allows_unlisted: bool = False) -> None:
        self._allows_unlisted = allows_unlisted
        self._books: dict[tuple[str, int], _Book] = {}  # by principal and type of resource
        self._named: dict[int, _Names] = {}  # what there are ACLs for, whomever they are about
        for acl in acls:
            self.add(acl)

    def add(self, acl: Acl) -> None:
        self._books.setdefault((acl.principal, acl.resource_type), _Book()).add(acl)
        self._named.setdefault(acl.resource_type, _Names()).add(acl)

    def remove(self, acl: Acl) -> None:
        key = acl.principal, acl.resource_type
        if self._books[key].remove(acl):
            del self._books[key]
        self._named[acl.resource_type].remove(acl)

    def decide(
        self, principal: str, host: str, operation: Operation, resource: Resource, name: str
    ) -> Ruling:
        """The cluster has no name."""
        if resource is Resource.CLUSTER:
            name = THE_CLUSTER
        allowing = None
        host = one_way(host)
        for who in (principal, EVERYBODY) if principal != EVERYBODY else (principal,):
            book = self._books.get((who, resource))
            if book is None:
                continue
            for acl in book.concerning(name, host):
                if not _covers(acl, operation):
                    continue
                if acl.permission != Permission.ALLOW:
                    return Ruling(False, acl)
                allowing = allowing or acl
        if allowing is not None:
            return Ruling(True, allowing)
        return Ruling(self._allows_unlisted and not self._is_named(resource, name))

    def _is_named(self, resource: Resource, name: str) -> bool:
        """True if there is an ACL for this resource, whomever it is about."""
        named = self._named.get(resource)
        return named is not None and named.has(name)

    def decide_any(self, principal: str, host: str, operation: Operation, resource: Resource) -> bool:
        """True if ACLs allow this for some resource of the type, whether or not it exists."""
        if self.decide(principal, host, operation, resource, "hardcode").is_allowed:
            return True  # as Kafka does: without ACLs, a name that nobody has stands for all
        host = one_way(host)
        mine = [
            acl
            for who in {principal, EVERYBODY}
            if (book := self._books.get((who, resource))) is not None
            for acl in book.all_for(host)
            if acl.operation in (operation, Operation.ALL)
        ]
        denied = {(acl.pattern_type, acl.resource_name) for acl in mine if not acl.allows}
        if (Pattern.LITERAL, WILDCARD) in denied:
            return False
        return any(acl.allows and not _is_under(denied, acl) for acl in mine)


def _covers(acl: Acl, operation: Operation) -> bool:
    if acl.operation in (operation, Operation.ALL):
        return True
    return acl.permission == Permission.ALLOW and acl.operation in IMPLIED_BY.get(operation, NOTHING)


def _is_under(denied: set[tuple[int, str]], acl: Acl) -> bool:
    """True if all that an ACL allows is denied by another. (Kafka looks at nothing else for the wildcard.)"""
    name = acl.resource_name
    if acl.pattern_type == Pattern.LITERAL:
        if name == WILDCARD:
            return False
        if (Pattern.LITERAL, name) in denied:
            return True
    return any((Pattern.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))


class _Book:
    """The ACLs of one principal for one type of resource."""

    def __init__(self) -> None:
        self._literal: dict[str, _Hosts] = {}
        self._prefixed: dict[str, _Hosts] = {}
        self._lengths: Counter[int] = Counter()  # of the prefixes

    def add(self, acl: Acl) -> None:
        patterns, name = self._patterns_of(acl), acl.resource_name
        hosts = patterns.get(name)
        if hosts is None:
            hosts = patterns[name] = _Hosts()
            if patterns is self._prefixed:
                self._lengths[len(name)] += 1
        hosts.add(acl)

    def remove(self, acl: Acl) -> bool:
        """Returns True if nothing is left."""
        patterns, name = self._patterns_of(acl), acl.resource_name
        if patterns[name].remove(acl):
            del patterns[name]
            if patterns is self._prefixed:
                _lessen(self._lengths, len(name))
        return not self._literal and not self._prefixed

    def _patterns_of(self, acl: Acl) -> "dict[str, _Hosts]":
        return self._prefixed if acl.pattern_type == Pattern.PREFIXED else self._literal

    def concerning(self, name: str, host: str) -> Iterator[Acl]:
        """The ACLs for this name and host."""
        literal, prefixed, size = self._literal, self._prefixed, len(name)
        if (hosts := literal.get(name)) is not None:
            yield from hosts.concerning(host)
        if name != WILDCARD and (hosts := literal.get(WILDCARD)) is not None:
            yield from hosts.concerning(host)
        lengths = self._lengths
        for prefix in [
            start for length in lengths if length <= size and (start := name[:length]) in prefixed
        ]:
            yield from prefixed[prefix].concerning(host)

    def all_for(self, host: str) -> Iterator[Acl]:
        for patterns in (self._literal, self._prefixed):
            for hosts in patterns.values():
                yield from hosts.concerning(host)


class _Hosts:
    """The ACLs of one principal with one pattern, by host: of each host there are at most as many as operations."""

    __slots__ = ("_by_host", "_ranges")

    def __init__(self) -> None:
        self._by_host: dict[str, list[Acl]] = {}
        self._ranges: dict[str, Network] = {}  # of those hosts that are ranges

    def add(self, acl: Acl) -> None:
        host = one_way(acl.host)
        self._by_host.setdefault(host, []).append(acl)
        network = network_of(host)
        if network is not None:
            self._ranges[host] = network

    def remove(self, acl: Acl) -> bool:
        """Returns True if nothing is left."""
        host = one_way(acl.host)
        self._by_host[host].remove(acl)
        if not self._by_host[host]:
            del self._by_host[host]
            self._ranges.pop(host, None)
        return not self._by_host

    def concerning(self, host: str) -> Iterator[Acl]:
        by_host = self._by_host
        if WILDCARD in by_host:
            yield from by_host[WILDCARD]
        if host in by_host and host != WILDCARD:
            yield from by_host[host]
        for name, network in self._ranges.items():
            if is_in(network, host):
                yield from by_host[name]


class _Names:
    """The patterns of one type of resource that ACLs name, and how many name each."""

    def __init__(self) -> None:
        self._literal: Counter[str] = Counter()
        self._prefixed: Counter[str] = Counter()
        self._lengths: Counter[int] = Counter()

    def add(self, acl: Acl) -> None:
        if acl.pattern_type == Pattern.PREFIXED:
            self._prefixed[acl.resource_name] += 1
            self._lengths[len(acl.resource_name)] += 1
        else:
            self._literal[acl.resource_name] += 1

    def remove(self, acl: Acl) -> None:
        if acl.pattern_type == Pattern.PREFIXED:
            _lessen(self._prefixed, acl.resource_name)
            _lessen(self._lengths, len(acl.resource_name))
        else:
            _lessen(self._literal, acl.resource_name)

    def has(self, name: str) -> bool:
        if name in self._literal or WILDCARD in self._literal:
            return True
        return any(name[:length] in self._prefixed for length in self._lengths if length <= len(name))


def _lessen(counts: Counter[K], key: K) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
