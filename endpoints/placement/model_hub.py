"""Existence check of model names on Hugging Face (EMBERLINE_MODEL_HUB).

`lookup` connects, for at most `DEADLINE_S`, and caches the answer in this process; everything else
reads the cache. Without an answer a name counts as not checked, never as missing.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import urllib3
from django.conf import settings
from django.core.cache import cache

from console.core.errors import Problem
from console.core.outbound import ForbiddenAddressError, pool_classes
from endpoints.spec.endpoint_spec import EndpointSpec
from endpoints.spec.validators import model_problem

DEADLINE_S = 2.5
FOUND_S, RETRY_S = 3600, 60
LARGEST_REPLY = 2_000_000
_SILENT = "model-hub-silent"
"""Cache key of the reason for a missing hub response."""


class HubStatus(StrEnum):
    FOUND = "found"
    MISSING = "missing"
    PRIVATE = "private"
    """No public model: the hub's response is the same for missing and private ones."""
    NOT_CHECKED = "not_checked"


@dataclass(frozen=True, slots=True)
class HubModel:
    """Model on the hub. `reason`: why the name was not checked. `params` 0: unknown."""

    name: str
    status: HubStatus
    reason: str = ""
    licence: str = ""
    gated: bool = False
    params: int = 0


def hub_host() -> str:
    return urlsplit(settings.EMBERLINE.model_hub).hostname or ""


def is_hub_name(model: str) -> bool:
    return "/" in model and not model.startswith("/") and model_problem(model) is None


def hub_name(spec: EndpointSpec) -> str:
    """Return the name that workers will download, "" if none or from a mirror."""
    source, name = spec.source, spec.weights
    if spec.simulated or source.type not in ("", "huggingface") or source.endpoint:
        return ""
    return name if is_hub_name(name) else ""


def cached(name: str) -> HubModel | None:
    return cache.get(_key(name))


def lookup(name: str) -> HubModel:
    """Return the hub's answer, from the cache if there is one. Connects at most once a minute while
    the hub does not answer.
    """
    hub_model = cached(name)
    if hub_model is not None:
        return hub_model
    if not settings.EMBERLINE.model_hub:
        return HubModel(name, HubStatus.NOT_CHECKED, "the check is off (EMBERLINE_MODEL_HUB)")
    silent: str | None = cache.get(_SILENT)
    if silent is not None:
        return HubModel(name, HubStatus.NOT_CHECKED, silent)
    answer: Future[HubModel] = _threads().submit(_fetch, settings.EMBERLINE.model_hub, name)
    try:
        listing = answer.result(DEADLINE_S)
    except FutureTimeout:  # name resolution has no timeout of its own
        listing = _not_checked(name, f"{hub_host()} did not respond within {DEADLINE_S:g} s")
    if listing.status is HubStatus.NOT_CHECKED:
        cache.set(_SILENT, listing.reason, RETRY_S)
    else:
        cache.set(_key(name), listing, FOUND_S if listing.status is HubStatus.FOUND else RETRY_S)
    return listing


def hub_problem(spec: EndpointSpec) -> Problem | None:
    """Return why the model cannot be downloaded, by the cached answer; None if it can, or if that
    is not known.
    """
    name = hub_name(spec)
    listing = cached(name) if name else None
    if listing is None or listing.status not in (HubStatus.MISSING, HubStatus.PRIVATE):
        return None
    if not spec.on_cluster and _has_copy(name):
        return None
    if listing.status is HubStatus.PRIVATE and _has_token(spec):
        return None
    path = "source.location" if name != spec.model else "model"
    remedy = "Correct the name"
    remedy += ", or set source.token_secret for a private model." if spec.on_cluster else "."
    return Problem(path, name, f"{hub_host()} has no public model {name}.", remedy, "unknown_model")


def _has_token(spec: EndpointSpec) -> bool:
    if spec.on_cluster:
        return (
            bool(spec.source.token_secret) or "HF_TOKEN" in spec.pod.env or bool(spec.pod.env_from)
        )
    return "HF_TOKEN" in os.environ or (_home() / "token").is_file()


def _has_copy(name: str) -> bool:
    return (_home() / "hub" / f"models--{name.replace('/', '--')}").is_dir()


def _home() -> Path:
    return Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")


def _key(name: str) -> str:
    return f"model-hub:{quote(name, safe='')}"


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=4, thread_name_prefix="model-hub")


@lru_cache(maxsize=1)
def _pool() -> urllib3.PoolManager:
    made = urllib3.PoolManager(num_pools=2, maxsize=4, timeout=DEADLINE_S)
    made.pool_classes_by_scheme = pool_classes(own=True)  # an address of the console's settings
    return made


def _fetch(hub: str, name: str) -> HubModel:
    url = f"{hub.rstrip('/')}/api/models/{quote(name)}"
    host = urlsplit(hub).hostname
    retries = urllib3.Retry(total=3, connect=0, read=0, redirect=3, raise_on_redirect=False)
    end = time.monotonic() + 2 * DEADLINE_S
    body = bytearray()
    try:
        reply = _pool().request("GET", url, retries=retries, preload_content=False)
        try:
            for part in reply.stream(65_536):
                body += part
                if len(body) > LARGEST_REPLY or time.monotonic() > end:
                    return _not_checked(name, f"the response of {host} is too large")
        finally:
            reply.close()
    except (ForbiddenAddressError, OSError, urllib3.exceptions.HTTPError, ValueError):
        return _not_checked(name, f"{host} is not reachable from the console")
    if reply.status == 404:
        return HubModel(name, HubStatus.MISSING)
    if reply.status in (401, 403):
        return HubModel(name, HubStatus.PRIVATE)
    if reply.status != 200:
        return _not_checked(name, f"{host} answered {reply.status}")
    return _parse(name, bytes(body))


def _parse(name: str, body: bytes) -> HubModel:
    try:
        data: Any = json.loads(body)
    except ValueError:
        data = None
    if not isinstance(data, Mapping):
        return _not_checked(name, f"{hub_host()} returned a response that is not JSON")
    card, weights = data.get("cardData"), data.get("safetensors")
    licence = card.get("license") if isinstance(card, Mapping) else ""
    total = weights.get("total") if isinstance(weights, Mapping) else 0
    return HubModel(
        name,
        HubStatus.FOUND,
        licence=licence[:60] if isinstance(licence, str) else "",
        gated=bool(data.get("gated")),
        params=total if isinstance(total, int) else 0,
    )


def _not_checked(name: str, reason: str) -> HubModel:
    return HubModel(name, HubStatus.NOT_CHECKED, reason)
