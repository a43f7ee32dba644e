"""Receivers and routes as an AlertmanagerConfig object of the Prometheus operator.

The object conforms to v1alpha1, every matching route is used, and it holds no secret: URLs and
passwords are keys of a separate Secret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import yaml

from dashboards.alerts.notify.protocol.alertmanager_config import (
    UNMATCHED_RECEIVER,
    MailFacts,
    ReceiverFacts,
    RouteFacts,
    resolve_team,
)
from dashboards.alerts.notify.protocol.matchers import Matcher

NAME: Final = "emberline-receivers"
"""Of the object, and of the Secret it reads."""
MAIL_KEY: Final = "smtp-password"
VERSION, KIND = "monitoring.coreos.com/v1alpha1", "AlertmanagerConfig"
_HEAD = """\
# Receivers and routes of Emberline, for a cluster with the Prometheus operator.
# The operator takes the object if the Alertmanager's alertmanagerConfigSelector does, and adds the
# condition namespace="(this object's)" to every route, unless the Alertmanager says
# alertmanagerConfigMatcherStrategy: {type: None}. Alertmanager signs nothing: a receiver which
# checks signatures refuses its messages.
"""
_BESIDE = """\
# Addresses are in a Secret of the same namespace. Make it from files of yours:
#   kubectl create secret generic {name} {files}
"""


def url_key(receiver: str) -> str:
    """Return the Secret key of a receiver's URL."""
    return f"{receiver}-url"


def keys(receivers: Sequence[ReceiverFacts], mail: MailFacts) -> tuple[str, ...]:
    """Return all keys that the Secret must contain."""
    found = [url_key(one.name) for one in receivers if one.kind != "email"]
    letters = any(one.kind == "email" for one in receivers)
    return (*found, MAIL_KEY) if letters and mail.user else tuple(found)


def spec(
    receivers: Sequence[ReceiverFacts],
    routes: Sequence[RouteFacts],
    teams: Mapping[str, Sequence[str]],
    mail: MailFacts,
) -> dict[str, Any]:
    """Return the `spec`. `teams`: endpoint names by team, since Alertmanager has no teams."""
    return {
        "route": {"receiver": UNMATCHED_RECEIVER, "routes": [_route(one, teams) for one in routes]},
        "receivers": [{"name": UNMATCHED_RECEIVER}, *(_receiver(one, mail) for one in receivers)],
    }


def render(
    receivers: Sequence[ReceiverFacts],
    routes: Sequence[RouteFacts],
    teams: Mapping[str, Sequence[str]],
    mail: MailFacts,
) -> str:
    """Return the YAML text for `kubectl apply`, with instructions for the Secret."""
    made = {
        "apiVersion": VERSION,
        "kind": KIND,
        "metadata": {"name": NAME, "labels": {"app.kubernetes.io/part-of": "emberline"}},
        "spec": spec(receivers, routes, teams, mail),
    }
    needed = keys(receivers, mail)
    files = " ".join(f"--from-file={key}=FILE" for key in needed)
    head = _HEAD + (_BESIDE.format(name=NAME, files=files) if needed else "")
    return head + yaml.safe_dump(made, sort_keys=False, width=1000, allow_unicode=True)


def _route(one: RouteFacts, teams: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "receiver": one.receiver,
        "matchers": [_matcher(resolve_team(each, teams)) for each in one.conditions],
        "groupBy": list(dict.fromkeys(one.group_by)),
        "groupWait": f"{one.wait_s}s",
        "groupInterval": f"{one.interval_s}s",
        "repeatInterval": f"{one.repeat_s}s",
        "continue": True,
    }
    return {name: value for name, value in found.items() if value != []}


def _matcher(one: Matcher) -> dict[str, str]:
    return {"name": one.name, "matchType": one.op, "value": one.value}


def _receiver(one: ReceiverFacts, mail: MailFacts) -> dict[str, Any]:
    resolved = {"sendResolved": one.send_resolved}
    if one.kind == "email":
        letter: dict[str, Any] = {
            "to": ", ".join(one.to),
            "from": mail.sender or "alerts@example.org",
            "smarthost": mail.smarthost or "localhost:25",
            "requireTLS": mail.tls,
            **resolved,
        }
        if mail.user:
            letter |= {"authUsername": mail.user, "authPassword": _key(MAIL_KEY)}
        return {"name": one.name, "emailConfigs": [letter]}
    address = _key(url_key(one.name))
    if one.kind == "slack":
        return {"name": one.name, "slackConfigs": [{"apiURL": address, **resolved}]}
    return {"name": one.name, "webhookConfigs": [{"urlSecret": address, **resolved}]}


def _key(key: str) -> dict[str, str]:
    return {"name": NAME, "key": key}
