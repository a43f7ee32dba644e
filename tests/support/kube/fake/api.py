"""Responses of each URL for an authorized user: JSON or a stream."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

from tests.support.kube.behaviours import stamp
from tests.support.kube.fake import discovery, rbac
from tests.support.kube.fake.rbac import Deed, User
from tests.support.kube.fake.refusals import ApiError
from tests.support.kube.fake.requests import Ask
from tests.support.kube.fake.selectors import by_fields, by_labels, by_object
from tests.support.kube.fake.store import Change, Object, Resource, Store
from tests.support.kube.fake.verbs import Verbs

READY = ("/readyz", "/livez", "/healthz")


class Api:
    def __init__(self, store: Store, verbs: Verbs) -> None:
        self.store, self.verbs = store, verbs
        self.accounts: dict[str, User] = {}  # by service account token
        self.page = 500  # maximum list page size

    def answer(self, user: User, ask: Ask) -> Any:
        """Return the JSON body; the server sets the status 201."""
        if ask.path in READY:
            return "ok"
        found = discovery.answer(ask.path, list(self.verbs.resources.values()))
        if found is not None:
            return found
        if ask.plural in _REVIEWS and ask.method == "POST":
            return _REVIEWS[ask.plural](self, user, ask)
        resource = self.verbs.resources.get((ask.prefix, ask.plural))
        if resource is None:
            raise ApiError(404, "the server could not find the requested resource")
        self.permit(user, ask.deed())
        if ask.sub and ask.sub not in ("status",):
            return self._sub(resource, ask)
        if ask.sub == "status" and not resource.status:
            raise ApiError(404, "the server could not find the requested resource")
        return self._whole(user, resource, ask)

    def _whole(self, user: User, resource: Resource, ask: Ask) -> Any:
        verbs, options, where = self.verbs, ask.options(), (ask.namespace, ask.name)
        if ask.method == "GET":
            return verbs.get(resource, *where) if ask.name else self.listed(resource, ask)
        if ask.method == "POST":
            return verbs.create(resource, ask.namespace, ask.body, options)
        if ask.method == "PUT":
            return verbs.replace(resource, *where, ask.body, options)
        if ask.method == "PATCH":
            if self.store.find(resource.kind, *where) is None:
                deed = ask.deed()
                self.permit(user, Deed("create", deed.group, deed.resource, deed.namespace))
            return verbs.patch(resource, *where, ask.media, ask.body, options)
        if ask.name:
            verbs.delete(resource, *where, options)
            return {"kind": "Status", "apiVersion": "v1", "status": "Success"}
        items = self._selected(resource, ask)
        for item in items:
            verbs.delete(resource, ask.namespace, item["metadata"]["name"], options)
        return {"kind": f"{resource.kind}List", "apiVersion": resource.version, "items": items}

    def permit(self, user: User, deed: Deed) -> None:
        if rbac.may(self.store, user, deed):
            return
        full = f"{deed.resource}.{deed.group}" if deed.group else deed.resource
        named = f'{full} "{deed.name}"' if deed.name else full
        where = (
            f' in the namespace "{deed.namespace}"' if deed.namespace else " at the cluster scope"
        )
        raise ApiError(
            403,
            f'{named} is forbidden: User "{user.name}" cannot {deed.verb} resource '
            f'"{deed.resource}" in API group "{deed.group}"{where}',
            kind=deed.resource,
            name=deed.name,
            group=deed.group,
        )

    # --- lists and watches

    def _selected(self, resource: Resource, ask: Ask) -> list[Object]:
        return [item for item in self.store.list(resource.kind, ask.namespace) if _fits(ask, item)]

    def listed(self, resource: Resource, ask: Ask) -> Any:
        with self.store.lock:
            items = self._selected(resource, ask)
            metadata: dict[str, Any] = {"resourceVersion": str(self.store.version)}
        first = 0
        if ask.query.get("continue"):
            version, _, at = base64.b64decode(ask.query["continue"]).decode().partition(" ")
            if int(version) < self.store.oldest:
                raise ApiError(410, "The provided continue parameter is too old", "Expired")
            first, metadata = int(at), {"resourceVersion": version}
        page = min(int(ask.query.get("limit", 0)) or self.page, self.page)
        if "limit" in ask.query and len(items) > first + page:
            text = f"{metadata['resourceVersion']} {first + page}"
            metadata["continue"] = base64.b64encode(text.encode()).decode()
            metadata["remainingItemCount"] = len(items) - first - page
        stop = first + page if "limit" in ask.query else len(items)
        return {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.version,
            "metadata": metadata,
            "items": items[first:stop],
        }

    def watched(self, user: User, ask: Ask, open_: Callable[[], bool]) -> Iterator[dict[str, Any]]:
        """Yield events until the timeout or until `open_` (polled) is False."""
        resource = self.verbs.resources.get((ask.prefix, ask.plural))
        if resource is None:
            raise ApiError(404, "the server could not find the requested resource")
        self.permit(user, ask.deed())
        since = int(ask.query.get("resourceVersion") or 0)
        if since and since < self.store.oldest:
            raise ApiError(410, f"too old resource version: {since} ({self.store.oldest})")
        return self._events(resource, ask, since, open_)

    def _events(
        self, resource: Resource, ask: Ask, since: int, open_: Callable[[], bool]
    ) -> Iterator[dict[str, Any]]:
        end = time.monotonic() + float(ask.query.get("timeoutSeconds") or 1800)
        if not since:
            with self.store.lock:
                items, since = self._selected(resource, ask), self.store.version
            for item in items:
                yield {"type": "ADDED", "object": item}
        while time.monotonic() < end and open_():
            with self.store.news:
                if since < self.store.oldest:
                    gone = ApiError(410, f"too old resource version: {since}").status()
                    yield {"type": "ERROR", "object": gone}
                    return
                changes = _after(self.store.changes[resource.kind], since)
                version = self.store.version
                if not changes:
                    self.store.news.wait(0.5)
            for change in changes:
                event = _selected_event(ask, change)
                if event is not None:
                    yield event
            since = max(since, version)
        if ask.query.get("allowWatchBookmarks") in ("true", "1", "True"):
            metadata = {"resourceVersion": str(since)}
            data = {"kind": resource.kind, "apiVersion": resource.version, "metadata": metadata}
            yield {"type": "BOOKMARK", "object": data}

    # --- subresources and reviews

    def _sub(self, resource: Resource, ask: Ask) -> Any:
        where = ask.namespace, ask.name
        if ask.sub == "scale" and resource.scale:
            if ask.method != "GET":
                replicas = int(ask.body["spec"]["replicas"])
                return self.verbs.rescale(resource, *where, replicas, ask.options())
            return self.verbs.scale(resource, *where)
        if ask.sub == "eviction" and resource.kind == "Pod":
            self._evict(resource, ask)
            return {"kind": "Status", "apiVersion": "v1", "status": "Success"}
        if ask.sub == "token" and resource.kind == "ServiceAccount":
            self.verbs.get(resource, *where)
            token = secrets.token_hex(16)
            name = f"system:serviceaccount:{ask.namespace}:{ask.name}"
            groups = ("system:serviceaccounts", f"system:serviceaccounts:{ask.namespace}")
            self.accounts[token] = User(name, (*groups, "system:authenticated"))
            until = stamp(time.time() + 3600)
            return {**ask.body, "status": {"token": token, "expirationTimestamp": until}}
        raise ApiError(404, "the server could not find the requested resource")

    def _evict(self, resource: Resource, ask: Ask) -> None:
        pod = self.verbs.get(resource, ask.namespace, ask.name)
        labels = pod["metadata"].get("labels", {})
        for budget in self.store.list("PodDisruptionBudget", ask.namespace):
            allowed = budget.get("status", {}).get("disruptionsAllowed", 0)
            if by_object(budget["spec"].get("selector"), labels) and allowed < 1:
                text = "Cannot evict pod as it would violate the pod's disruption budget."
                cause = {"reason": "DisruptionBudget", "message": f"{budget['metadata']['name']}"}
                raise ApiError(429, text, causes=[cause])
        self.verbs.delete(resource, ask.namespace, ask.name, ask.options())

    def _access(self, user: User, ask: Ask) -> Any:
        value = ask.body["spec"].get("resourceAttributes", {})
        resource = "/".join(filter(None, (value.get("resource", ""), value.get("subresource", ""))))
        deed = Deed(
            value.get("verb", ""),
            value.get("group", ""),
            resource,
            value.get("namespace", ""),
            value.get("name", ""),
        )
        return {**ask.body, "status": {"allowed": rbac.may(self.store, user, deed)}}

    def _rules(self, user: User, ask: Ask) -> Any:
        found = list(rbac.rules(self.store, user, ask.body["spec"].get("namespace", "")))
        if "system:masters" in user.groups:
            found = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
        status = {"resourceRules": found, "nonResourceRules": [], "incomplete": False}
        return {**ask.body, "status": status}

    def _self(self, user: User, ask: Ask) -> Any:
        info = {"username": user.name, "groups": list(user.groups)}
        return {**ask.body, "status": {"userInfo": info}}


_REVIEWS: dict[str, Callable[[Api, User, Ask], Any]] = {
    "selfsubjectaccessreviews": Api._access,
    "selfsubjectrulesreviews": Api._rules,
    "selfsubjectreviews": Api._self,
}


def _fits(ask: Ask, item: Object) -> bool:
    labels = item["metadata"].get("labels", {})
    return by_labels(ask.query.get("labelSelector", ""), labels) and by_fields(
        ask.query.get("fieldSelector", ""), item
    )


def _after(changes: list[Change], version: int) -> list[Change]:
    at = len(changes)
    while at and changes[at - 1].version > version:
        at -= 1
    return changes[at:]


def _selected_event(ask: Ask, change: Change) -> dict[str, Any] | None:
    """Return the event for a watch with a selector: leaving the selection is a deletion."""
    if ask.namespace and change.now["metadata"].get("namespace") != ask.namespace:
        return None
    now = change.kind != "DELETED" and _fits(ask, change.now)
    before = change.before is not None and _fits(ask, change.before)
    if not now and not before:
        return None
    kind = "DELETED" if not now else "MODIFIED" if before else "ADDED"
    return {"type": kind, "object": change.now}
