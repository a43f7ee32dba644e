"""Parse API URLs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

from tests.support.kube.fake.rbac import Deed
from tests.support.kube.fake.refusals import ApiError
from tests.support.kube.fake.verbs import Options

VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


@dataclass(frozen=True)
class Ask:
    method: str
    path: str
    prefix: str
    plural: str
    namespace: str
    name: str
    sub: str
    query: dict[str, str]
    media: str
    body: Any
    agent: str = ""

    @property
    def watch(self) -> bool:
        return self.query.get("watch", "") in ("1", "true", "True")

    def deed(self) -> Deed:
        if self.method in VERBS:
            verb = VERBS[self.method]
        elif self.method == "DELETE":
            verb = "delete" if self.name else "deletecollection"
        else:
            verb = "watch" if self.watch else "get" if self.name else "list"
        group = self.prefix.split("/")[2] if self.prefix.startswith("/apis/") else ""
        resource = f"{self.plural}/{self.sub}" if self.sub else self.plural
        name = self.name
        if not name and self.query.get("fieldSelector", "").startswith("metadata.name="):
            name = self.query["fieldSelector"].partition("=")[2].partition(",")[0]
        return Deed(verb, group, resource, self.namespace, name)

    def options(self) -> Options:
        body = self.body if isinstance(self.body, dict) and self.method == "DELETE" else {}
        query = self.query
        grace = query.get("gracePeriodSeconds", body.get("gracePeriodSeconds"))
        return Options(
            manager=query.get("fieldManager", "") or self.agent.partition("/")[0],
            sub=self.sub if self.sub == "status" else "",
            force=query.get("force", "") in ("true", "True", "1"),
            dry_run="All" in (query.get("dryRun", ""), *(body.get("dryRun") or ())),
            strict=query.get("fieldValidation", "") == "Strict",
            grace_s=None if grace is None else int(grace),
            propagation=query.get("propagationPolicy", "") or body.get("propagationPolicy") or "",
            preconditions=body.get("preconditions"),
        )


def read(method: str, target: str, media: str, body: bytes, agent: str = "") -> Ask:
    url = urlsplit(target)
    query = {key: value[-1] for key, value in parse_qs(url.query).items()}
    parts = [unquote(part) for part in url.path.strip("/").split("/")]
    length = 2 if parts[0] == "api" else 3
    prefix, rest = "/" + "/".join(parts[:length]), parts[length:]
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    plural, name, sub = [*rest, "", "", ""][:3]
    return Ask(
        method,
        url.path,
        prefix,
        plural,
        namespace,
        name,
        sub,
        query,
        media,
        _body(body, media),
        agent,
    )


def _body(body: bytes, media: str) -> Any:
    if not body:
        return None
    try:
        return yaml.safe_load(body) if "yaml" in media and body[:1] != b"{" else json.loads(body)
    except (ValueError, yaml.YAMLError) as error:
        raise ApiError(400, f"the body cannot be read: {error}") from None
