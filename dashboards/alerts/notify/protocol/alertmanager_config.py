"""Receivers and routes for an Alertmanager: a part of alertmanager.yml, or an AlertmanagerConfig.

`amtool check-config` accepts the file, and the object conforms to v1alpha1 of the Prometheus
operator. Every matching route is used (`continue`), and neither holds a secret: the file names only
the host of a secret URL; the object refers to keys of a separate Secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from console.core import yaml_reader
from dashboards.alerts.notify.protocol.alert import TEAM
from dashboards.alerts.notify.protocol.matchers import Matcher, Matchers

UNMATCHED_RECEIVER: Final = "nobody"
NAME: Final = "emberline-receivers"
"""Name of the object and of its Secret."""
MAIL_KEY: Final = "smtp-password"
VERSION, KIND = "monitoring.coreos.com/v1alpha1", "AlertmanagerConfig"
_FILE_HEAD = """\
# Receivers and routes of Emberline, for alertmanager.yml (complete file, or to be merged).
# URLs are secrets: replace each REPLACE. Alertmanager does not sign messages: receivers that
# verify signatures reject them.
"""
_OBJECT_HEAD = """\
# Receivers and routes of Emberline, for a cluster with the Prometheus operator.
# The Alertmanager's alertmanagerConfigSelector must select it. The operator adds the matcher
# namespace="(this object's)" to every route, unless the Alertmanager sets
# alertmanagerConfigMatcherStrategy: {type: None}. Alertmanager does not sign messages: receivers
# that verify signatures reject them.
"""
_BESIDE = """\
# URLs are in a Secret of the same namespace. Create it from files:
#   kubectl create secret generic {name} {files}
"""
# Fields of alertmanager.yml by their names in the object.
_OBJECT_NAMES: Final = {
    "group_by": "groupBy",
    "group_wait": "groupWait",
    "group_interval": "groupInterval",
    "repeat_interval": "repeatInterval",
    "send_resolved": "sendResolved",
    "require_tls": "requireTLS",
    "email_configs": "emailConfigs",
    "slack_configs": "slackConfigs",
    "api_url": "apiURL",
    "webhook_configs": "webhookConfigs",
    "url": "urlSecret",
}


@dataclass(frozen=True, slots=True)
class ReceiverFacts:
    name: str
    kind: str
    shown: str = ""
    to: tuple[str, ...] = ()
    send_resolved: bool = True


@dataclass(frozen=True, slots=True)
class RouteFacts:
    receiver: str
    conditions: Matchers
    group_by: tuple[str, ...]
    wait_s: int
    interval_s: int
    repeat_s: int


@dataclass(frozen=True, slots=True)
class MailFacts:
    smarthost: str = ""
    sender: str = ""
    tls: bool = True
    user: str = ""


@dataclass(frozen=True, slots=True)
class AlertmanagerExport:
    """Configuration for an Alertmanager that sends what the console would send.

    `teams`: endpoint names by team, since Alertmanager has no teams.
    """

    receivers: Sequence[ReceiverFacts]
    routes: Sequence[RouteFacts]
    teams: Mapping[str, Sequence[str]]
    mail: MailFacts

    def yml(self) -> str:
        return _FILE_HEAD + _dump(
            self._document(str, lambda one: one.shown.replace("…", "REPLACE"))
        )

    def spec(self) -> dict[str, Any]:
        """Return the `spec` of an AlertmanagerConfig."""
        login = {"authUsername": self.mail.user, "authPassword": _secret(MAIL_KEY)}
        found = self._document(
            lambda one: {"name": one.name, "matchType": one.op, "value": one.value},
            lambda one: _secret(url_key(one.name)),
            login if self.mail.user else {},
        )
        renamed: dict[str, Any] = _with_object_names(found)
        return renamed

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys that its Secret must contain."""
        found = [url_key(one.name) for one in self.receivers if one.kind != "email"]
        letters = any(one.kind == "email" for one in self.receivers)
        return (*found, MAIL_KEY) if letters and self.mail.user else tuple(found)

    def object(self) -> str:
        """Return the YAML text for `kubectl apply`, with instructions for the Secret."""
        made = {
            "apiVersion": VERSION,
            "kind": KIND,
            "metadata": {"name": NAME, "labels": {"app.kubernetes.io/part-of": "emberline"}},
            "spec": self.spec(),
        }
        files = " ".join(f"--from-file={key}=FILE" for key in self.keys)
        return (
            _OBJECT_HEAD + (_BESIDE.format(name=NAME, files=files) if files else "") + _dump(made)
        )

    def _document(
        self,
        matcher: Callable[[Matcher], Any],
        address: Callable[[ReceiverFacts], Any],
        login: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        receivers = [_receiver(one, self.mail, address, login or {}) for one in self.receivers]
        return {
            "route": {
                "receiver": UNMATCHED_RECEIVER,
                "routes": [_route(one, self.teams, matcher) for one in self.routes],
            },
            "receivers": [{"name": UNMATCHED_RECEIVER}, *receivers],
        }


def url_key(receiver: str) -> str:
    """Return the Secret key of a receiver's URL."""
    return f"{receiver}-url"


def _route(
    one: RouteFacts, teams: Mapping[str, Sequence[str]], matcher: Callable[[Matcher], Any]
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "receiver": one.receiver,
        "matchers": [matcher(_resolve_team(each, teams)) for each in one.conditions],
        "group_by": list(dict.fromkeys(one.group_by)),
        "group_wait": f"{one.wait_s}s",
        "group_interval": f"{one.interval_s}s",
        "repeat_interval": f"{one.repeat_s}s",
        "continue": True,
    }
    return {name: value for name, value in found.items() if value != []}


def _resolve_team(one: Matcher, teams: Mapping[str, Sequence[str]]) -> Matcher:
    """Return a matcher on the team as one on the team's current endpoints."""
    if one.name != TEAM:
        return one
    positive = Matcher(TEAM, {"!=": "=", "!~": "=~"}.get(one.op, one.op), one.value)
    names = sorted(
        name for team, of_it in teams.items() if positive.matches({TEAM: team}) for name in of_it
    )
    return Matcher("endpoint", "!~" if one.op.startswith("!") else "=~", "|".join(names) or "-")


def _receiver(
    one: ReceiverFacts,
    mail: MailFacts,
    address: Callable[[ReceiverFacts], Any],
    login: Mapping[str, Any],
) -> dict[str, Any]:
    resolved = {"send_resolved": one.send_resolved}
    if one.kind == "email":
        letter = {
            "to": ", ".join(one.to),
            "from": mail.sender or "alerts@example.org",
            "smarthost": mail.smarthost or "localhost:25",
            "require_tls": mail.tls,
            **resolved,
            **login,
        }
        return {"name": one.name, "email_configs": [letter]}
    if one.kind == "slack":
        return {"name": one.name, "slack_configs": [{"api_url": address(one), **resolved}]}
    return {"name": one.name, "webhook_configs": [{"url": address(one), **resolved}]}


def _secret(key: str) -> dict[str, str]:
    return {"name": NAME, "key": key}


def _with_object_names(value: Any) -> Any:
    if isinstance(value, dict):
        return {_OBJECT_NAMES.get(k, k): _with_object_names(v) for k, v in value.items()}
    return [_with_object_names(one) for one in value] if isinstance(value, list) else value


def _dump(document: Mapping[str, Any]) -> str:
    return yaml_reader.render(document, allow_unicode=True)
