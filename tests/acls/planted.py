"""Bugs that are planted in access control, each with the test that finds it; see `tests/planting`."""

from tests.planting.changes import judging, swapping
from tests.planting.planted import planted

NODE, RULES = "tests/serving/test_acls.py", "tests/acls/test_rules.py"

PLANTED = [
    planted(
        "open-entrance",
        "a request in an Envelope is handled without checking who sent it",
        swapping("serving.road:Road.ask", "self.take(...)", "self._handle(route, request, message)"),
        script=f"{NODE}::test_an_envelope_needs",
    ),
    planted(
        "weak-denial",
        "a denial counts only if nothing was allowed before",
        judging("acls.rules:Rules.decide", "permission", by="not acl.allows and allowing is None"),
        script=f"{RULES}::test_a_denial_wins",
    ),
    planted(
        "longer-than-its-prefix",
        "a prefix does not match the name that is as long as it",
        swapping("acls.rules:_Book.concerning", "length <= size", "length < size"),
        script=f"{RULES}::test_a_prefix_is",
    ),
    planted(
        "old-decision",
        "a connection keeps what it was told before the ACLs changed",
        judging("serving.authorizer:may_of", "generation", by="known is None or known.caller != caller"),
        script=f"{NODE}::test_a_change_is_in_force",
    ),
    planted(
        "old-principal",
        "a connection keeps what it was told about the principal that it had before",
        judging(
            "serving.authorizer:may_of",
            "generation",
            by="known is None or known.generation != authorizer.generation",
        ),
        script=f"{NODE}::test_another_principal",
    ),
    planted(
        "senders-principal",
        "a request in an Envelope has the principal of the broker that forwarded it",
        swapping("api.envelope:_answer", "forwarded.caller._replace(...)", "request.caller"),
        script=f"{NODE}::test_an_envelope_needs",
    ),
]
