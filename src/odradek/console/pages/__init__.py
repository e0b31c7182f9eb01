"""One module for each noun, in the order of the navigation. `PAGES` and `ACTIONS` are all of theirs."""

from odradek.console.pages import (
    acls,
    groups,
    messages,
    overview,
    picture,
    pipelines,
    quotas,
    topics,
    transactions,
    users,
)
from odradek.console.registry import Action, Page

MODULES = (overview, picture, topics, messages, groups, transactions, pipelines, users, acls, quotas)

PAGES: list[Page] = [page for module in MODULES for page in module.PAGES]
ACTIONS: list[Action] = [action for module in MODULES for action in getattr(module, "ACTIONS", ())]
