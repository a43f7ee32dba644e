"""Receivers and routes as a part of alertmanager.yml.

`amtool check-config` accepts the result, every matching route is used (`continue`), and it holds no
secret: of secret URLs only the host is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from dashboards.alerts.notify.protocol.alert import TEAM
from dashboards.alerts.notify.protocol.matchers import Matcher, Matchers

UNMATCHED_RECEIVER: Final = "nobody"
_HEAD = """\
# Receivers and routes of Emberline. Merge it into your alertmanager.yml, or use it whole.
# Addresses are secrets: write each where REPLACE stands. Alertmanager signs nothing: a receiver
# which checks signatures refuses its messages.
"""


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


def render(
    receivers: Sequence[ReceiverFacts],
    routes: Sequence[RouteFacts],
    teams: Mapping[str, Sequence[str]],
    mail: MailFacts,
) -> str:
    """Return the YAML text. `teams`: endpoint names by team, since Alertmanager has no teams."""
    document: dict[str, Any] = {
        "route": {
            "receiver": UNMATCHED_RECEIVER,
            "routes": [_route(one, teams) for one in routes],
        },
        "receivers": [{"name": UNMATCHED_RECEIVER}, *(_receiver(one, mail) for one in receivers)],
    }
    return _HEAD + yaml.safe_dump(document, sort_keys=False, width=1000, allow_unicode=True)


def _route(one: RouteFacts, teams: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "receiver": one.receiver,
        "matchers": [str(resolve_team(each, teams)) for each in one.conditions],
        "group_by": list(one.group_by),
        "group_wait": f"{one.wait_s}s",
        "group_interval": f"{one.interval_s}s",
        "repeat_interval": f"{one.repeat_s}s",
        "continue": True,
    }
    return {name: value for name, value in found.items() if value not in ([], ())}


def resolve_team(one: Matcher, teams: Mapping[str, Sequence[str]]) -> Matcher:
    """Return a matcher on the team as one on the team's current endpoints."""
    if one.name != TEAM:
        return one
    positive = Matcher(TEAM, {"!=": "=", "!~": "=~"}.get(one.op, one.op), one.value)
    names = sorted(
        name for team, of_it in teams.items() if positive.matches({TEAM: team}) for name in of_it
    )
    return Matcher("endpoint", "!~" if one.op.startswith("!") else "=~", "|".join(names) or "-")


def _receiver(one: ReceiverFacts, mail: MailFacts) -> dict[str, Any]:
    resolved = {"send_resolved": one.send_resolved}
    url = one.shown.replace("…", "REPLACE")
    if one.kind == "email":
        letter = {
            "to": ", ".join(one.to),
            "from": mail.sender or "alerts@example.org",
            "smarthost": mail.smarthost or "localhost:25",
            "require_tls": mail.tls,
            **resolved,
        }
        return {"name": one.name, "email_configs": [letter]}
    if one.kind == "slack":
        return {"name": one.name, "slack_configs": [{"api_url": url, **resolved}]}
    return {"name": one.name, "webhook_configs": [{"url": url, **resolved}]}
