"""Names of the API keys and key groups that a recording names by keyed hashes."""

from __future__ import annotations

import hashlib

from django.utils import timezone

from endpoints.keys import selectors as keys
from endpoints.keys.storage import CONSOLE
from endpoints.models import Endpoint
from endpoints.router.compiler import hash_key
from routing.engine.observe.traffic import group_digest, key_digest


def scope_names(endpoint: Endpoint) -> dict[str, str]:
    """Return names by scope (`model.isolation.scope_of`), also of revoked keys. Those of deleted
    keys are unknown, and all from before a renewal of the console's own key.
    """
    own = keys.key_facts(keys.valid_keys(endpoint).filter(name=CONSOLE), timezone.now())
    key_config = {"keys": [{"id": key.id, "sha256": key.sha256} for key in own]}
    secret = hash_key(key_config).encode()

    def digest(data: bytes) -> str:
        return hashlib.blake2b(data, digest_size=8, key=secret).hexdigest()

    names = {
        f"key {key_digest(digest, key)}": name for key, name in keys.names_of(endpoint).items()
    }
    for group, name in endpoint.key_groups.values_list("pk", "name"):
        names[f"group {group_digest(digest, str(group))}"] = name
    return names
