"""Pages of audited objects, and the deletion of objects that no longer exist."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Max
from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import urlencode

from console.accounts.permissions import Somebody
from console.audit import selectors
from console.core.registry import Registry
from console.web import errors

# "deleted": the console finished a deletion that a user began with "delete". Events of earlier
# versions have these alone, without the kind.
_DELETIONS = ("deleted", "delete")
ListNames = Callable[[Collection[str], Any], Collection[str]]


@dataclass(frozen=True, slots=True)
class TargetKind:
    """Kind of audited object; `kind` begins the target, as in "endpoint/demo".

    `url_name` takes the name as its argument `parameter`; `existing(names, viewer)` returns the
    names with a page for the viewer. `converter`: URL converter of the name on pages of other apps.
    """

    kind: str
    url_name: str
    existing: ListNames
    parameter: str = "name"
    converter: str = ""

    def name_in(self, request: HttpRequest) -> str:
        """Return the name in the route of the request, "" if it shows no object of this kind."""
        match = request.resolver_match
        if match is None:
            return ""
        name = str(match.kwargs.get(self.parameter, ""))
        here = match.app_name == self.url_name.partition(":")[0]
        return name if here or f"<{self.converter}:{self.parameter}>" in match.route else ""


@dataclass(frozen=True, slots=True)
class TargetState:
    """Page of the target, or when it was deleted; both empty if neither is known."""

    url: str = ""
    deleted_at: datetime | None = None


_kinds: Registry[TargetKind] = Registry(key=lambda kind: kind.kind)
register_kind = _kinds.register


def describe(targets: Iterable[str], viewer: Somebody) -> Mapping[str, TargetState]:
    """Return the states by target; one query per kind, and one for deletions."""
    owners = {target: "/".join(target.split("/")[:2]) for target in targets}
    urls: dict[str, str] = {}
    for kind in _kinds:
        begin = f"{kind.kind}/"
        names = {owner.removeprefix(begin) for owner in owners.values() if owner.startswith(begin)}
        for name in kind.existing(names, viewer) if names else ():
            urls[f"{begin}{name}"] = reverse(kind.url_name, args=[name])
    gone = _deletion_times({owner for owner in owners.values() if owner not in urls}, viewer)
    return {
        target: TargetState(urls.get(owner, ""), gone.get(owner))
        for target, owner in owners.items()
    }


def _deletion_times(targets: Collection[str], viewer: Somebody) -> dict[str, datetime]:
    kinds = {kind.kind for kind in _kinds}
    named = [target for target in targets if target.partition("/")[0] in kinds]
    if not named:
        return {}
    rows = selectors.events_visible_to(viewer).filter(target__in=named, verb__in=_deletions())
    return dict(rows.order_by().values_list("target").annotate(Max("at")))


def _deletions() -> list[str]:
    return [*_DELETIONS, *(f"{kind.kind}.{verb}" for kind in _kinds for verb in _DELETIONS)]


def explain_not_found(request: HttpRequest) -> errors.Explanation | None:
    """Return when and by whom the object of the page was deleted, if the user may see that."""
    for kind in _kinds:
        if not (name := kind.name_in(request)):
            continue
        target = f"{kind.kind}/{name}"
        rows = selectors.events_visible_to(getattr(request, "user", None))
        last = list(rows.filter(target=target, verb__in=_deletions())[:2])
        if not last:
            continue
        by = next((row.actor_name for row in last if row.actor_id is not None), last[0].actor_name)
        return errors.Explanation(
            f"{kind.kind.replace('-', ' ').capitalize()} {name} was deleted",
            last[0].at,
            by,
            f"{reverse('audit:list')}?{urlencode({'target': target})}",
        )
    return None
