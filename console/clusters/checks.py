"""What would make kept kubeconfigs unreadable, found by `manage.py check`."""

from __future__ import annotations

import os
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, register
from django.core.checks import Warning as Caution


@register()
def encryption_key(**_: Any) -> list[CheckMessage]:
    """In a pod, a key that was made there goes with it, and its neighbour makes another."""
    own = settings.EMBERLINE.secrets / "encryption_key"
    in_a_pod = "KUBERNETES_SERVICE_HOST" in os.environ
    if not in_a_pod or not own.exists():
        return []
    if own.read_text(encoding="utf-8").strip() not in settings.EMBERLINE.encryption_keys:
        return []
    return [
        Caution(
            f"Kubeconfigs are encrypted with a key of this pod's own ({own}).",
            hint="Set EMBERLINE_ENCRYPTION_KEY_FILE to a key from a Secret, the same in every pod.",
            id="emberline.W008",
        )
    ]
