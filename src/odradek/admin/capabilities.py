"""Find out by ApiVersions what a cluster can do: a console offers nothing else."""

from odradek.admin.access import Access
from odradek.admin.requests import ask_any
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

APIS = {  # what pages need, by name
    "users": 51,  # AlterUserScramCredentials
    "acls": 29,  # DescribeAcls
    "quotas": 48,  # DescribeClientQuotas
    "transactions": 66,  # ListTransactions
    "quorum": 55,  # DescribeQuorum
}


def served_apis(cluster: Access) -> frozenset[int]:
    """The keys of the APIs that the first broker that responds serves."""
    response = ask_any(cluster, ApiVersionsRequest("odradek", "1"), ApiVersionsResponse)
    return frozenset(one.api_key for one in response.api_keys)
