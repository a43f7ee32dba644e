"""Message about an alert group: Alertmanager webhook document (version 4), and texts from it.

Messages are bounded in size. Label values are escaped for chat and mail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

from dashboards.alerts.notify.protocol.alert import Alert, common_pairs

FIRING, RESOLVED = "firing", "resolved"
MOST: Final = 100
_IN_TEXT = 20
_NEVER = "0001-01-01T00:00:00Z"
_LONGEST = 300


def build_document(
    receiver: str, key: str, group: Mapping[str, str], alerts: Sequence[Alert], console: str
) -> dict[str, Any]:
    """Return the webhook document, firing alerts first. `console`: public URL, empty if unknown."""
    ordered = sorted(alerts, key=lambda one: (one.ended is not None, one.name, one.endpoint))
    shown = ordered[:MOST]
    return {
        "version": "4",
        "groupKey": key,
        "truncatedAlerts": len(ordered) - len(shown),
        "status": FIRING if any(one.ended is None for one in ordered) else RESOLVED,
        "receiver": receiver,
        "groupLabels": dict(group),
        "commonLabels": common_pairs(one.labels for one in ordered),
        "commonAnnotations": common_pairs(one.annotations for one in ordered),
        "externalURL": console,
        "alerts": [_one(one, console) for one in shown],
    }


def _one(alert: Alert, console: str) -> dict[str, Any]:
    return {
        "status": FIRING if alert.ended is None else RESOLVED,
        "labels": dict(alert.labels),
        "annotations": dict(alert.annotations),
        "startsAt": _at(alert.started),
        "endsAt": _at(alert.ended),
        "generatorURL": f"{console}/alerts/" if console else "",
        "fingerprint": alert.fingerprint,
    }


def format_title(body: Mapping[str, Any]) -> str:
    """Return a title such as "[FIRING:2] HighTTFT chat"."""
    alerts = body["alerts"]
    count = sum(one["status"] == body["status"] for one in alerts)
    named = [body["commonLabels"].get(label, "") for label in ("alertname", "endpoint")]
    words = " ".join(filter(None, named)) or "several alerts"
    return _line(f"[{body['status'].upper()}:{count}] {words}")[:200]


def format_text(body: Mapping[str, Any]) -> str:
    """Return the mail text, a few lines for each alert."""
    parts = [_alert_text(one) for one in body["alerts"][:_IN_TEXT]]
    more = len(body["alerts"]) - _IN_TEXT + body["truncatedAlerts"]
    if more > 0:
        parts.append(f"... and {more} more.")
    if body["externalURL"]:
        parts.append(f"{body['externalURL']}/alerts/\nSilence: {silence_link(body)}")
    return "\n\n".join(parts) + "\n"


def slack_payload(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the payload for incoming webhooks of Slack, Mattermost and Rocket.Chat."""
    colour = "good" if body["status"] == RESOLVED else "danger"
    text = "\n\n".join(_escaped(_alert_text(one)) for one in body["alerts"][:_IN_TEXT])
    heading: dict[str, Any] = {
        "color": colour,
        "fallback": _escaped(format_title(body)),
        "title": _escaped(format_title(body)),
        "text": text,
        "mrkdwn_in": [],
    }
    if body["externalURL"]:
        heading["title_link"] = f"{body['externalURL']}/alerts/"
    return {"attachments": [heading]}


def silence_link(body: Mapping[str, Any]) -> str:
    """Return the URL of the silence form, prefilled for these alerts."""
    known = ("alertname", "endpoint", "severity")
    pairs = {name: body["groupLabels"][name] for name in known if body["groupLabels"].get(name)}
    return f"{body['externalURL']}/alerts/silences/new/?{urlencode(pairs)}"


def _alert_text(one: Mapping[str, Any]) -> str:
    labels, notes = one["labels"], one["annotations"]
    head = f"{one['status'].upper()}: {labels.get('alertname', 'alert')}"
    if labels.get("severity"):
        head += f" ({labels['severity']})"
    since = f"since {one['startsAt']}"
    if one["status"] == RESOLVED:
        since = f"from {one['startsAt']} to {one['endsAt']}"
    apart = ("alertname", "severity")
    pairs = ", ".join(f"{k}={v}" for k, v in sorted(labels.items()) if k not in apart)
    lines = [head, notes.get("summary", ""), notes.get("description", ""), pairs, since]
    return "\n".join(_line(line)[:_LONGEST] for line in lines if line)


def _line(line: str) -> str:
    """Join lines: a label value must not start a mail header."""
    return "".join(char if char.isprintable() else " " for char in line).strip()


def _escaped(line: str) -> str:
    """Escape Slack's three control characters, so that no label creates a link or a mention."""
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _at(moment: datetime | None) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ") if moment else _NEVER
