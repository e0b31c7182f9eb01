"""Which operations a client may do, as a set of bits: all that a resource has, until there are ACLs."""

TOPIC_OPERATIONS = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))
GROUP_OPERATIONS = sum(1 << code for code in (3, 6, 8, 10, 11))
