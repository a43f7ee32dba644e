"""Output of `emberline cache-tier get`."""

from __future__ import annotations

from typing import Any

from console.commandline.platform import cache_tiers


def document(**more: Any) -> Any:
    node = {"state": "ready", "url": "redis://127.0.0.1:6400/0", "restarts": 0, "message": ""}
    return {
        "name": "chat",
        "phase": "Ready",
        "reason": "Serving",
        "message": "",
        "node_count": 2,
        "memory_bytes": 1 << 30,
        "disk_bytes": 0,
        "copies": 1,
        "policy": "arc",
        "cluster": "",
        "used_by": [],
        "url": "",
        "nodes": [
            {**node, "name": "cache-chat-0", "blocks": 300.0, "share": 0.75, "moved_in": 0.0},
            {**node, "name": "cache-chat-1", "blocks": None, "share": None, "moved_in": None},
        ],
        "rebalancing": None,
        **more,
    }


def test_tier_is_shown_with_the_share_of_each_node() -> None:
    text = "\n".join(cache_tiers._format_tier(document()))
    first, second = (line.split() for line in text.splitlines() if line.startswith("cache-chat"))
    assert first[:6] == ["cache-chat-0", "ready", "300", "75", "%", "0"]
    assert second[:5] == ["cache-chat-1", "ready", "-", "-", "-"]
    assert "rebalancing" not in text


def test_rebalancing_is_shown() -> None:
    change = {"message": "cache-chat-1 joined."}
    text = "\n".join(cache_tiers._format_tier(document(rebalancing=change)))
    assert "rebalancing: cache-chat-1 joined." in text
