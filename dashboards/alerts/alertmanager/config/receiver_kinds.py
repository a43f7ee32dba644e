"""Kinds of receivers: the integrations of Alertmanager, each with its fields.

A kind is declared here only; form, REST, validation and configuration follow. `path` is the place
of a field in alertmanager.yml, `object_path` that in an AlertmanagerConfig (v1alpha1) of the
Prometheus operator, whose secrets are references.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_TITLE: Final = '{{ template "emberline.title" . }}'
_TEXT: Final = '{{ template "emberline.text" . }}'
_BEARER: Final = "http_config.authorization.credentials"
_BEARER_OBJECT: Final = "httpConfig.authorization.credentials"


@dataclass(frozen=True, slots=True)
class ReceiverField:
    """Field of a kind. `url`: an address that the console's outbound rules apply to; `number`: an
    integer.
    """

    name: str
    path: str
    label: str
    object_path: str = ""
    secret: bool = False
    required: bool = False
    url: bool = False
    number: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class ReceiverKind:
    """Integration `section` of alertmanager.yml. `texts`: constant fields, mostly templates;
    `since`: the first version of Alertmanager that has it.
    """

    label: str
    section: str
    object_section: str
    fields: tuple[ReceiverField, ...]
    texts: Mapping[str, str] = field(default_factory=dict)
    since: tuple[int, int] = (0, 22)

    def field(self, name: str) -> ReceiverField:
        return next(field for field in self.fields if field.name == name)

    def settings(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the integration's fields in alertmanager.yml."""
        made: dict[str, Any] = dict(self.texts)
        for parameter in self.fields:
            if values.get(parameter.name) not in (None, ""):
                set_path(made, parameter.path, values[parameter.name])
        if "http_config" in made:  # replaces the global one
            made["http_config"] |= {"follow_redirects": False}
        return made

    def object_settings(
        self, values: Mapping[str, Any], references: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the fields in an AlertmanagerConfig; `references`: key selectors of secrets."""
        made: dict[str, Any] = {}
        for item in self.fields:
            value = references.get(item.name) if item.secret else values.get(item.name)
            if value not in (None, ""):
                set_path(made, item.object_path or item.path, value)
        return made


def set_path(target: dict[str, Any], path: str, value: Any) -> None:
    *folders, name = path.split(".")
    for folder in folders:
        target = target.setdefault(folder, {})
    target[name] = value


def _url(path: str, object_path: str, note: str = "") -> ReceiverField:
    return ReceiverField(
        *("url", path, "URL", object_path), secret=True, required=True, url=True, note=note
    )


def _secret(name: str, path: str, label: str, object_path: str, note: str = "") -> ReceiverField:
    return ReceiverField(name, path, label, object_path, secret=True, required=True, note=note)


KINDS: Final[Mapping[str, ReceiverKind]] = {
    "webhook": ReceiverKind(
        "Webhook",
        *("webhook_configs", "webhookConfigs"),
        (
            _url("url", "urlSecret"),
            ReceiverField(
                *("secret", _BEARER, "Bearer token", _BEARER_OBJECT),
                secret=True,
                note="Optional. Sent as Authorization: Bearer.",
            ),
        ),
    ),
    "email": ReceiverKind(
        "E-mail",
        *("email_configs", "emailConfigs"),
        (
            ReceiverField(
                *("to", "to", "Recipients"),
                required=True,
                note="Separated by commas. Sent through the SMTP server of EMBERLINE_SMTP_HOST.",
            ),
        ),
        {"text": _TEXT},
    ),
    "slack": ReceiverKind(
        "Slack",
        *("slack_configs", "slackConfigs"),
        (
            _url("api_url", "apiURL", "Incoming webhook of Slack, Mattermost or Rocket.Chat."),
            ReceiverField("channel", "channel", "Channel", note="Optional, such as #alerts."),
        ),
        {"title": _TITLE, "text": _TEXT},
    ),
    "pagerduty": ReceiverKind(
        "PagerDuty",
        *("pagerduty_configs", "pagerdutyConfigs"),
        (
            _secret(
                *("routing_key", "routing_key", "Integration key", "routingKey"),
                note="Of an Events API v2 integration.",
            ),
        ),
        {"description": _TITLE, "client": "Emberline"},
    ),
    "opsgenie": ReceiverKind(
        "Opsgenie",
        *("opsgenie_configs", "opsgenieConfigs"),
        (
            _secret("api_key", "api_key", "API key", "apiKey"),
            ReceiverField(
                *("api_url", "api_url", "API URL", "apiURL"),
                url=True,
                note="Optional, such as https://api.eu.opsgenie.com/.",
            ),
        ),
        {"message": _TITLE, "description": _TEXT},
    ),
    "telegram": ReceiverKind(
        "Telegram",
        *("telegram_configs", "telegramConfigs"),
        (
            _secret("bot_token", "bot_token", "Bot token", "botToken"),
            ReceiverField(
                *("chat_id", "chat_id", "Chat ID", "chatID"),
                required=True,
                number=True,
                note="Negative for groups.",
            ),
        ),
        {"message": f"{_TITLE}\n{_TEXT}", "parse_mode": ""},
        (0, 24),
    ),
    "sns": ReceiverKind(
        "Amazon SNS",
        *("sns_configs", "snsConfigs"),
        (
            ReceiverField("topic_arn", "topic_arn", "Topic ARN", "topicARN", required=True),
            ReceiverField("region", "sigv4.region", "Region", required=True),
            ReceiverField(
                *("access_key", "sigv4.access_key", "Access key ID", "sigv4.accessKey"),
                secret=True,
                note="Empty: the credentials of the machine or pod.",
            ),
            ReceiverField(
                *("secret_key", "sigv4.secret_key", "Secret access key", "sigv4.secretKey"),
                secret=True,
            ),
            ReceiverField("role_arn", "sigv4.role_arn", "Role ARN", "sigv4.roleArn"),
        ),
        {"subject": _TITLE, "message": _TEXT},
        (0, 23),
    ),
    "webex": ReceiverKind(
        "Webex",
        *("webex_configs", "webexConfigs"),
        (
            ReceiverField("room_id", "room_id", "Room ID", "roomID", required=True),
            _secret("token", _BEARER, "Bot token", _BEARER_OBJECT),
        ),
        {"message": f"{_TITLE}\n{_TEXT}"},
        (0, 25),
    ),
    "discord": ReceiverKind(
        "Discord",
        *("discord_configs", "discordConfigs"),
        (_url("webhook_url", "apiURL"),),
        {"title": _TITLE, "message": _TEXT},
        (0, 25),
    ),
    "msteams": ReceiverKind(
        "Microsoft Teams",
        *("msteams_configs", "msteamsConfigs"),
        (_url("webhook_url", "webhookUrl"),),
        {"title": _TITLE, "text": _TEXT},
        (0, 26),
    ),
    "victorops": ReceiverKind(
        "Splunk On-Call (VictorOps)",
        *("victorops_configs", "victoropsConfigs"),
        (
            _secret("api_key", "api_key", "API key", "apiKey"),
            ReceiverField("routing_key", "routing_key", "Routing key", "routingKey", required=True),
        ),
        {"entity_display_name": _TITLE, "state_message": _TEXT},
    ),
    "pushover": ReceiverKind(
        "Pushover",
        *("pushover_configs", "pushoverConfigs"),
        (
            _secret("user_key", "user_key", "User key", "userKey"),
            _secret("token", "token", "Application token", "token"),
        ),
        {"title": _TITLE, "message": _TEXT},
    ),
    "wechat": ReceiverKind(
        "WeChat Work",
        *("wechat_configs", "wechatConfigs"),
        (
            _secret("api_secret", "api_secret", "API secret", "apiSecret"),
            ReceiverField("corp_id", "corp_id", "Corp ID", "corpID", required=True),
            ReceiverField("agent_id", "agent_id", "Agent ID", "agentID"),
            ReceiverField("to_user", "to_user", "User", "toUser"),
        ),
        {"message": f"{_TITLE}\n{_TEXT}"},
    ),
}
CHOICES: Final = tuple((name, kind.label) for name, kind in KINDS.items())
