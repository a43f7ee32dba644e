"""Names of recorded API keys and key groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dashboards.insight.whatif.scopes import scope_names
from endpoints.keys import selectors
from endpoints.keys.storage import add_key
from endpoints.keys.terms import NO_TERMS
from endpoints.models import KeyGroup
from endpoints.router.compiler import hash_key
from routing.engine.config import parse
from routing.engine.prompt.identity import Identifier
from routing.engine.tokens.usage import BytesPerToken
from tests.support.console import make_endpoint


def test_keys_and_groups_are_named_as_the_router_hashes_them(db: Any, tmp_path: Path) -> None:
    endpoint = make_endpoint("demo")
    group = KeyGroup.objects.create(name="search")
    group.endpoints.add(endpoint)
    key = add_key(None, group, "batch", NO_TERMS).key
    (console,) = selectors.valid_keys(endpoint)
    compiled = {"keys": [{"id": "console", "sha256": console.sha256}, {"id": "x", "sha256": "0"}]}
    secret = hash_key(compiled).encode()
    config = parse({"listen": "h:1"}, tmp_path)
    digest = Identifier(secret, 256, None, secret, BytesPerToken(), config.limits).digest
    assert scope_names(endpoint) == {
        f"key {digest(b'key:console')}": "console",
        f"key {digest(b'key:' + str(key.pk).encode())}": "batch",
        f"group {digest(b'group:' + str(group.pk).encode())}": "search",
    }
