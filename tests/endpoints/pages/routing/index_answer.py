"""Router /index with every kind of worker, in the engine's format."""

from __future__ import annotations

import time
from typing import Any


def source(worker: str, **changes: Any) -> dict[str, Any]:
    facts = {
        "worker": worker,
        "rank": 0,
        "endpoint": "tcp://10.0.0.7:5557",
        "replay": "tcp://10.0.0.7:5558",
        "state": "following",
        "partial": False,
        "blocks": 900,
        "parked": 0,
        "batches": 412,
        "last": 411,
        "lag_s": 0.004,
        "counts": {"connected": 1, "replay": 1},
        "errors": {},
        "skipped": {},
    }
    return facts | changes


def honesty(**changes: Any) -> dict[str, Any]:
    facts = {
        "answers": 64,
        "promised_and_missing": 0.01,
        "reported_and_unforeseen": 0.02,
        "believed": True,
        "demotions": 0,
    }
    return facts | changes


def probe(result: str = "hit", **changes: Any) -> dict[str, Any]:
    facts = {
        "result": result,
        "at": time.time() - 95,
        "path": "/v1/chat/completions",
        "prompt_tokens": 90,
        "predicted": 64,
        "reported": 64,
        "error": "",
        "remedy": "",
    }
    return facts | changes


def answer(prefix: str = "demo-worker-") -> dict[str, Any]:
    """Worker 0 is well; 1 caught gaps and has L1; 2 lies; 3 publishes nothing."""
    names = [f"{prefix}{number}" for number in range(4)]
    sources = [
        source(names[0], endpoint="tcp://10.0.0.6:5557"),
        source(
            names[1],
            blocks=2600,
            partial=True,
            lag_s=0.31,
            parked=12,
            counts={"connected": 2, "gap": 2, "gap_filled": 2, "replay": 4},
        ),
        source(
            names[2],
            endpoint="tcp://10.0.0.8:5557",
            blocks=310,
            counts={"connected": 1, "gap_lost": 1, "restart_replay": 1},
        ),
        {
            "worker": names[3],
            "state": "none",
            "reason": "events_off",
            "message": "The worker publishes no KV events: start it with --kv-events-config "
            '\'{"enable_kv_cache_events":true,"endpoint":"tcp://*:5557"}\'.',
        },
    ]
    remedy = "its events told of blocks which the engine then did not have"
    kv = {
        "telling": True,
        "blocks": 3210,
        "block_sizes": [32],
        "pending_blocks": 4,
        "sources": sources,
        "tiers": {
            names[0]: {"gpu": 900, "l1": 0, "l2": 0},
            names[1]: {"gpu": 1100, "l1": 1300, "l2": 200},
            names[2]: {"gpu": 310, "l1": 0, "l2": 0},
            names[3]: {"gpu": 0, "l1": 0, "l2": 0},
        },
        "honesty": {
            names[0]: honesty(),
            names[1]: honesty(answers=131),
            names[2]: honesty(promised_and_missing=0.71, believed=False, demotions=2),
        },
        "probes": {
            "interval_s": 300.0,
            "workers": {
                names[0]: probe(),
                names[2]: probe("not_cached", reported=0, remedy=remedy),
            },
            "skipped": {names[1]: "busy", names[3]: "not_followed"},
        },
        "fallbacks": {"timeout": 3, "multimodal": 17},
        "tokens": {"trust": "verified", "waiting": 0, "outcomes": {}, "check_failures": 0},
        "tokenizer": {
            "path": "/models/smollm2-135m-instruct",
            "problem": "",
            "compared": "same",
            "findings": [],
        },
    }
    return {"strategy": "kvaware", "workers": {}, "kv": kv}
