"""Alert rules by name, for the search and the audit log."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from django.urls import reverse

from console.web.shell.search import MAX_HITS_PER_FINDER, Hit
from dashboards.alerts.rules.rule_file import BY_NAME
from dashboards.alerts.settings import documents, selectors


def existing(names: Collection[str], viewer: Any) -> Collection[str]:
    built_in = {name for name in names if name in BY_NAME}
    others = set(names) - built_in
    if not others or not documents.can_see_user_rules(viewer):
        return built_in
    own = selectors.user_rules().filter(name__in=others)
    return built_in | set(own.values_list("name", flat=True))


def find(viewer: Any, text: str) -> Sequence[Hit]:
    query = text.casefold()
    names = [name for name in BY_NAME if query in name.casefold()]
    if documents.can_see_user_rules(viewer):
        own = selectors.user_rules().filter(name__icontains=text).values_list("name", flat=True)
        names += own[:MAX_HITS_PER_FINDER]
    return [
        Hit("alert rule", name, reverse("alerting:rule", args=[name]), "alert-triangle")
        for name in sorted(names)
    ]
