"""Names of settings that a user may have mistyped."""

from collections.abc import Iterable

from odradek.admin.failures import AdminError


def guess_topic_setting(refusal: str, keys: Iterable[str]) -> str:
    """Return words to add to a refusal that names one of these keys, if we know a similar one; else nothing."""
    from odradek.config.topic_definitions import TOPIC_DEFINITIONS

    return guess(refusal, keys, TOPIC_DEFINITIONS)


def guess(refusal: str, keys: Iterable[str], known: Iterable[str]) -> str:
    """Clusters may know settings that we do not, so it is the cluster that refuses, and we only guess."""
    from odradek.config.unsupported import unknown

    known = list(known)
    for key in keys:
        if key in refusal and key not in known:
            return unknown(key, known).removeprefix(f"unknown setting {key}")
    return ""


def check_deleted(subject: str, keys: Iterable[str], known: Iterable[str]) -> None:
    """Raise AdminError for a setting that cannot be reset, because there is none of this name. The cluster would
    accept it, as Kafka does."""
    from odradek.config.unsupported import unknown

    known = list(known)
    for key in keys:
        if key not in known:
            raise AdminError(f"{subject}: {unknown(key, known)}")
