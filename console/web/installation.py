"""What the Settings page says of this process and its machine. No secret, no query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.db import connection

from console.web.shell.cards import Card, Fact

_WORKERS = {"vllm": "vLLM", "simulated": "simulated: texts and times are made up"}
_PROVISIONERS = {
    "local": "processes of this machine",
    "kubernetes": "a Kubernetes cluster",
    "fake": "nothing: it only pretends",
}


def facts(_viewer: Any) -> Sequence[Fact]:
    emberline = settings.EMBERLINE
    return (
        Fact("Workers", _WORKERS.get(emberline.workers, emberline.workers)),
        Fact("Run as", _PROVISIONERS.get(emberline.provisioner, emberline.provisioner)),
        Fact("Database", connection.display_name),
        Fact("Listens on", f"{emberline.host}:{emberline.port}"),
        Fact("Cookies", "over HTTPS only" if settings.SESSION_COOKIE_SECURE else "over HTTP, too"),
        Fact("Log", f"{emberline.log_level}, as {emberline.log_format}s"),
    )


CARD = Card(
    "installation",
    "This installation",
    "Set by the environment of the console's processes; a change needs their restart.",
    10,
    facts,
    "web:about",
    "Versions",
)
