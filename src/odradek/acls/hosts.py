"""Addresses and ranges of them, as ACLs name hosts.

Kafka compares texts, and Java writes an IPv6 address in full (0:0:0:0:0:0:0:1). Here addresses are compared, however
they are written.
"""

from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

Network = IPv4Network | IPv6Network


@lru_cache(4096)
def one_way(host: str) -> str:
    """An address, written in one way; an IPv4 address in IPv6 is the IPv4 address. Everything else is unchanged."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def network_of(host: str) -> Network | None:
    """The range that an ACL names, if it names one."""
    if "/" not in host:
        return None
    try:
        return ip_network(host, strict=False)
    except ValueError:
        return None


def is_in(network: Network, host: str) -> bool:
    try:
        return ip_address(host) in network
    except ValueError:
        return False
