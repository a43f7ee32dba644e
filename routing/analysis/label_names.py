"""Display names of metric label values: routing reasons, outcomes, tiers and other codes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_DECISIONS = {
    "prefix_hit": "Prefix match",
    "kv_hit": "KV cache match",
    "session_sticky": "Session affinity",
    "round_robin": "Round robin",
    "pinned": "Pinned",
    "fallback_no_match": "No cached prefix",
    "fallback_least_loaded": "Diverted by load",
    "fallback_unhealthy": "Preferred worker down",
    "retry": "Retried",
}
_REQUEST_ERRORS = {
    "bad_request": "Invalid request",
    "body_too_complex": "Body too complex",
    "broken_stream": "Stream interrupted",
    "buffer_full": "Request buffer full",
    "cache_isolation": "Cache isolation violated",
    "client_cancelled": "Client disconnected",
    "adapter_incomplete": "Adapter not at all workers",
    "engine_died": "Engine crashed",
    "engine_stuck": "Engine stuck",
    "forbidden": "Forbidden",
    "internal_error": "Internal router error",
    "invalid_json": "Invalid JSON",
    "key_budget_reserved": "Key budget reserved",
    "key_budget_spent": "Key budget exhausted",
    "key_rate_limit_requests": "Key request rate limit",
    "key_rate_limit_tokens": "Key token rate limit",
    "no_healthy_worker": "No healthy worker",
    "queue_full": "Queue full",
    "queue_timeout": "Queue timeout",
    "rate_limit_requests": "Request rate limit",
    "rate_limit_tokens": "Token rate limit",
    "shutting_down": "Router shut down",
    "stale_connection": "Stale connection",
    "stalled_client": "Client stopped reading",
    "too_many_clients": "Too many connections",
    "file_descriptors": "No file descriptor left in the router",
    "too_many_messages": "Too many messages",
    "too_many_parts": "Too many message parts",
    "unauthorized": "Invalid API key",
    "unsupported_encoding": "Unsupported content encoding",
    "unknown_worker": "Unknown worker",
    "upstream_5xx": "Worker returned 5xx",
    "upstream_connect": "Worker connection failed",
    "upstream_protocol": "Invalid worker response",
    "upstream_reset": "Worker connection reset",
    "upstream_timeout": "Worker timeout",
    "worker_busy": "Worker returned 429",
}
# kvaware: requests routed without KV cache contents.
_KV_FALLBACKS = {
    "mismatch": "Tokens differ from the worker's",
    "multimodal": "Images or audio",
    "no_events": "No KV events received",
    "no_tokenizer": "No tokenizer available",
    "remote_error": "Tokenization on the worker failed",
    "several_prompts": "Several prompts in one request",
    "starting": "Tokenizer loading",
    "streamed": "Body too large to buffer, or not JSON",
    "template_error": "Chat template error",
    "timeout": "Tokenization exceeded --kv-wait",
    "tokenizer_error": "Tokenizer failed",
    "too_large": "Too large",
    "unsupported_field": "Unsupported field",
    "unsupported_path": "Unsupported path",
    "unverified": "Tokens not verified yet",
}
_KV_RECOVERIES = {
    "connected": "Connected",
    "disconnected": "Disconnected",
    "duplicate": "Duplicate batch",
    "gap": "Gap detected",
    "gap_filled": "Gap filled",
    "gap_lost": "Gap not filled",
    "held_overflow": "Event buffer overflow",
    "joined_late": "Joined mid-stream",
    "lost": "Events lost",
    "no_replay": "Replay unavailable",
    "poll": "Idle poll",
    "poll_found": "Idle poll found events",
    "rebuild": "Rebuild",
    "rebuild_useless": "Rebuild without effect",
    "replay": "Replay",
    "replay_hole": "Replay with a gap",
    "replay_stray": "Unexpected replay batch",
    "replay_timeout": "Replay timeout",
    "replay_truncated": "Replay truncated",
    "reset": "Index reset",
    "restart_process": "Restart: new process",
    "restart_replay": "Restart: replay differs",
    "restart_sequence": "Restart: sequence reset",
    "restart_unverified": "Restart not verified",
    "while_waiting": "Received while connecting",
}
_CACHE_NODES = {
    "admin": "Administrator",
    "admission": "Admission policy",
    "backpressure": "Backpressure",
    "capacity": "Capacity",
    "quota": "Quota",
    "ttl": "Expired (TTL)",
}
_WORKERS = {
    "deferred": "Deferred",
    "max_num_queued_reqs": "Queued requests limit",
    "max_num_queued_tokens": "Queued tokens limit",
}
# Why a prompt token was computed (routing.engine.misses.attribution).
_CAUSES = {
    "first_seen": "First seen",
    "changed_timestamp": "Prompt changed early: timestamp",
    "changed_id": "Prompt changed early: number or ID",
    "changed_order": "Prompt changed early: order",
    "changed_whitespace": "Prompt changed early: white space",
    "changed_text": "Prompt changed early: text",
    "other_salt": "Different cache salt",
    "other_model": "Different model or adapter",
    "other_template": "Different template arguments",
    "placed_load": "Other worker: load",
    "placed_worker_down": "Other worker: holder down",
    "placed_pinned": "Other worker: pinned",
    "placed_strategy": "Other worker: strategy",
    "placed_router": "Other worker: other router",
    "in_flight": "Prefix still being computed",
    "evicted_device": "Evicted from device memory",
    "evicted_l1": "Evicted from L1",
    "evicted_l2": "Evicted from L2",
    "evicted_unknown": "Evicted (tier not reported)",
    "expired_l2": "Expired in L2",
    "lost_restart": "Lost by a worker restart",
    "lost_rollout": "Lost by a rollout",
    "lost_scale_down": "Lost by a scale-down",
    "lost_reset": "Lost by a cache reset",
    "below_block": "Below block size",
    "index_stale": "KV index stale",
    "not_cacheable": "Not cacheable",
    "not_hashed": "Not tracked by the strategy",
}
_TIERS = {
    "device": "Device",
    "gpu": "Device",
    "l1": "L1",
    "l2": "L2",
    "beyond": "L1 or L2",
    "computed": "Computed",
}
_OUTCOMES = {
    "2": "Success (2xx)",
    "3": "Redirect (3xx)",
    "4": "Client error (4xx)",
    "5": "Server error (5xx)",
    "ok": "Answered",
    "failed": "Failed",
    "running": "Running",
    "missed": "Expected hit, got a miss",
}

# By label, then by value.
NAMES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "reason": {
            **_DECISIONS,
            **_REQUEST_ERRORS,
            **_KV_FALLBACKS,
            **_KV_RECOVERIES,
            **_CACHE_NODES,
            **_WORKERS,
        },
        "cause": _CAUSES,
        "tier": _TIERS,
        "outcome": _OUTCOMES,
        "status": {f"{digit}xx": _OUTCOMES[digit] for digit in "2345"},
        "cache": {"none": "Not cached", "partial": "Partly cached", "full": "Fully cached"},
        "source": {
            "device": _TIERS["device"],
            "host": _TIERS["l1"],
            "disk": _TIERS["l2"],
            "p2p": "Peer worker",
            "external_unspecified": _TIERS["beyond"],
        },
        "finished_reason": {
            "stop": "Completed",
            "length": "Max tokens reached",
            "abort": "Aborted by client",
            "error": "Error",
            "repetition": "Repetition detected",
        },
        "kind": {
            "promotions": "L2 load failed",
            "promotions_refused": "L2 load: L1 full",
            "cascades": "L2 store failed",
            "stores_refused": "L1 store: L1 full",
            "dropped": "L2 store dropped (backlog)",
        },
        "op": {"get": "Get", "put": "Put", "exists": "Exists", "delete": "Delete"},
        "result": {
            "hit": "Hit",
            "miss": "Miss",
            "ok": "OK",
            "error": "Error",
            "timeout": "Timeout",
        },
        "medium": {"memory": "memory", "disk": "disk"},
    }
)


# Reasons are codes of one metric; exports list the names of a panel's metric only.
_REASONS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "emberline_router_routing_decisions_total": _DECISIONS,
        "emberline_router_request_errors_total": _REQUEST_ERRORS,
        "emberline_router_retries_total": _REQUEST_ERRORS,
        "emberline_router_kv_fallbacks_total": _KV_FALLBACKS,
        "emberline_router_kv_recoveries_total": _KV_RECOVERIES,
        "emberline_l2_rejected_writes_total": _CACHE_NODES,
        "vllm:admission_rejections_total": _WORKERS,
    }
)


def list_names(label: str, metric: str) -> Mapping[str, str]:
    """Return the display names of the label's values in a metric."""
    return _REASONS.get(metric, {}) if label == "reason" else NAMES.get(label, {})


def get_name(label: str, value: str) -> str:
    """Return the display name of a label's value, the value itself if unknown. A label joined of
    two ("strategy_reason", values separated by a space) names both parts.
    """
    if label in NAMES:
        return NAMES[label].get(value, value)
    first, _, second = label.partition("_")
    first_label, _, other = value.partition(" ")
    return (
        f"{get_name(first, first_label)}: {get_name(second, other)}" if second and other else value
    )


def get_name_in_sentence(label: str, value: str) -> str:
    """Return the display name as it stands within a sentence; acronyms keep their case."""
    words = get_name(label, value)
    first = words.split(" ", 1)[0]
    return words[0].lower() + words[1:] if first.isalpha() and first.istitle() else words
