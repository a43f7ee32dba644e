"""Values that an analysis can change: their fields, those of an endpoint now, and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from cachetier import selectors as cache_tiers
from console.api.bodies import read_body
from console.core.errors import Problem, Refused
from dashboards.insight.misses.report import worker_price
from dashboards.insight.traces.storage import recorded_hours
from dashboards.insight.whatif.model.analysis import Configuration
from dashboards.insight.whatif.model.backtest import MIN_REQUESTS
from dashboards.insight.whatif.model.calibration import MIN_SAMPLES
from dashboards.insight.whatif.model.isolation import STRICTNESS
from endpoints import selectors as endpoints
from endpoints.fit.requirements import flag_values, worker_requirements
from endpoints.models import Endpoint
from endpoints.placement.capacity_check import check_capacity, stored_token_bytes
from endpoints.router import selectors as routing
from endpoints.spec.endpoint_spec import EndpointSpec
from endpoints.spec.fields import ISOLATIONS, STRATEGIES

GIB = 1024**3
L1_POLICIES = ("lru", "arc")
L2_POLICIES = ("lru", "s3fifo", "arc")
NEEDED_REQUESTS = MIN_SAMPLES + MIN_REQUESTS  # streamed, with a worker and a TTFT
HOUR = timedelta(hours=1)
MAX_PERIOD = timedelta(days=7)
Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class InputField:
    """Input of a what-if analysis. `low`, `high`: bounds, allowed themselves; `choices` of a text;
    `blank`: may be unknown.
    """

    name: str
    label: str
    help: str = ""
    low: float = 0.0
    high: float = 0.0
    whole: bool = False
    choices: tuple[str, ...] = ()
    blank: bool = False


FIELDS = (
    InputField("strategy", "Strategy", choices=STRATEGIES),
    InputField(
        "isolation",
        "Cache isolation",
        "Stricter than recorded: needs traffic recorded with API keys.",
        choices=ISOLATIONS,
    ),
    InputField("replicas", "Replicas", low=1, high=256, whole=True),
    InputField("routers", "Routers", "Routers share their state.", 1, 16, True),
    InputField("rate", "Request rate (× recorded)", "", 0.1, 20),
    InputField(
        "speed", "Worker speed (× present)", "Of another worker type; not estimated.", 0.1, 20
    ),
    InputField(
        "device_tokens",
        "Device cache (tokens)",
        "Per worker. Empty: fitted to the measured hit rate.",
        1000,
        1e9,
        True,
        blank=True,
    ),
    InputField("l1_gib", "L1 size (GiB)", "Per worker. 0: no L1.", 0, 65536),
    InputField("l1_policy", "L1 eviction policy", choices=L1_POLICIES),
    InputField("l2_gib", "L2 size (GiB)", "Of all workers together. 0: no L2.", 0, 1e6),
    InputField("l2_policy", "L2 eviction policy", choices=L2_POLICIES),
    InputField(
        "kv_kib",
        "KV cache per token (KiB)",
        "Converts GiB to tokens. Needed for L1 and L2.",
        0.1,
        1e5,
        blank=True,
    ),
    InputField("price_usd_hour", "Worker price (USD/h)", "Empty: no cost.", 0, 1e5, blank=True),
)


@extend_schema_field(OpenApiTypes.STR)
class _ChoiceField(serializers.ChoiceField):
    """A text in the schema, which has enumerations of the same names from the endpoint's spec."""


def _field(declared: InputField) -> serializers.Field[Any, Any, Any, Any]:
    keywords: dict[str, Any] = {
        "required": False,
        "label": declared.label,
        "help_text": f"{declared.label}. {declared.help}".strip(),
    }
    if declared.choices:
        keywords["help_text"] += f" One of {', '.join(declared.choices)}."
        return _ChoiceField(choices=declared.choices, **keywords)
    keywords["allow_null"] = declared.blank
    if declared.whole:
        low, high = int(declared.low), int(declared.high)
        return serializers.IntegerField(min_value=low, max_value=high, **keywords)
    return serializers.FloatField(min_value=declared.low, max_value=declared.high, **keywords)


class WhatIfValuesSerializer(serializers.Serializer[Any]):
    def get_fields(self) -> dict[str, Any]:
        return {**super().get_fields(), **{field.name: _field(field) for field in FIELDS}}


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Limits of the workers that an analysis does not change."""

    step_tokens: int
    max_requests: int


def engine_limits(spec: EndpointSpec) -> EngineLimits:
    needs = worker_requirements(spec)
    flags = flag_values(spec.worker_args)
    try:
        most = int(flags.get("--max-num-seqs", ""))
    except ValueError:
        most = 256
    return EngineLimits(max(needs.batch_tokens, 16), max(most, 1))


def present_values(endpoint: Endpoint) -> Values:
    """Return the endpoint's values now; the device cache as its workers report it."""
    spec = endpoint.parsed
    reported = [worker.cache_tokens for worker in routing.workers(endpoint).found]
    sizes = [tokens for tokens in reported if tokens]
    report = check_capacity(spec)
    capacity = report.judged[0].fit.capacity_tokens if report.judged else 0
    tokens = min(sizes) if sizes else (0 if spec.simulated else capacity)
    l1, l2 = spec.cache.l1, spec.cache.l2
    return {
        "strategy": spec.routing.effective_strategy,
        "isolation": spec.routing.cache_isolation,
        "replicas": max(endpoints.wanted_replicas(endpoint), 1),
        "routers": max(len(routing.routers(endpoint)), 1),
        "rate": 1.0,
        "speed": 1.0,
        "device_tokens": tokens or None,
        "l1_gib": l1.size_gib if l1.enabled else 0.0,
        "l1_policy": l1.policy,
        "l2_gib": _l2_gib(spec) if l2.enabled else 0.0,
        "l2_policy": _l2_policy(spec),
        "kv_kib": _kv_kib(spec),
        "price_usd_hour": _list_price(spec) if (price := worker_price(endpoint)) is None else price,
    }


def _kv_kib(spec: EndpointSpec) -> float | None:
    each = stored_token_bytes(spec)
    return None if each is None else round(each / 1024, 3)


def _list_price(spec: EndpointSpec) -> float | None:
    report = check_capacity(spec)
    if not report.judged:
        return None
    preferred = report.judged[0]
    if preferred.price_usd_hour is None:
        return None
    return round(preferred.price_usd_hour / max(preferred.fit.workers_per_machine, 1), 4)


def _l2_gib(spec: EndpointSpec) -> float:
    l2 = spec.cache.l2
    tier = cache_tiers.get_tier(l2.tier) if l2.backend == "tieredstorage" else None
    if tier is None:
        return 0.0
    return round(tier.spec.usable_bytes / GIB, 3)


def _l2_policy(spec: EndpointSpec) -> str:
    l2 = spec.cache.l2
    tier = cache_tiers.get_tier(l2.tier) if l2.enabled and l2.backend == "tieredstorage" else None
    return tier.policy if tier is not None and tier.policy in L2_POLICIES else "lru"


@dataclass(frozen=True, slots=True)
class RecordingProgress:
    """Recorded requests of an endpoint, of those that an analysis needs."""

    is_on: bool
    requests: int

    @property
    def needed(self) -> int:
        return NEEDED_REQUESTS

    @property
    def is_enough(self) -> bool:
        return self.requests >= NEEDED_REQUESTS


def recording_progress(endpoint: Endpoint) -> RecordingProgress:
    hours = recorded_hours(endpoint)
    is_on = endpoint.parsed.routing.record_traffic
    return RecordingProgress(is_on, sum(hour.requests for hour in hours))


def default_period(endpoint: Endpoint) -> tuple[Any, Any] | None:
    """Return the newest recorded hour, and the hour before it if that was recorded too."""
    hours = recorded_hours(endpoint)
    if not hours:
        return None
    newest = hours[0].hour
    before = len(hours) > 1 and hours[1].hour == newest - HOUR
    return (newest - HOUR if before else newest), min(newest + HOUR, timezone.now())


def read_values(given: Mapping[str, Any], present: Values) -> Values:
    """Return the candidate's values: `given` ones, else the present ones. Raise Refused."""
    changed = {name: None if value == "" else value for name, value in given.items()}
    values: Values = {**present, **read_body(WhatIfValuesSerializer, changed)}
    for name, title in (("l1_gib", "L1"), ("l2_gib", "L2")):
        if values[name] and not values["kv_kib"]:
            remedy = f"Enter the KiB of one token, or set the {title} size to 0."
            text = f"Needed to convert the {title} size to tokens."
            raise Refused(Problem("kv_kib", None, text, remedy, "required"))
    if is_weaker(values["isolation"], present["isolation"]):
        text = f"The recorded prompts are hashed apart under isolation {present['isolation']!r}."
        stricter = STRICTNESS[STRICTNESS.index(present["isolation"]) + 1 :]
        choice = f"Choose {' or '.join(map(repr, stricter))}, or set" if stricter else "Set"
        remedy = f"{choice} {values['isolation']!r} on the endpoint and record its traffic."
        raise Refused(Problem("isolation", values["isolation"], text, remedy, "not_recorded"))
    return values


def is_weaker(isolation: str, than: str) -> bool:
    return STRICTNESS.index(isolation) < STRICTNESS.index(than)


def make_configuration(values: Values, limits: EngineLimits) -> Configuration:
    token = (values["kv_kib"] or 0.0) * 1024
    return Configuration(
        strategy=values["strategy"],
        replicas=values["replicas"],
        routers=values["routers"],
        rate=values["rate"],
        speed=values["speed"],
        device_tokens=values["device_tokens"] or 0,
        l1_tokens=int(values["l1_gib"] * GIB / token) if token else 0,
        l1_policy=values["l1_policy"],
        l2_tokens=int(values["l2_gib"] * GIB / token) if token else 0,
        l2_policy=values["l2_policy"],
        hourly_price=values["price_usd_hour"],
        step_tokens=limits.step_tokens,
        max_requests=limits.max_requests,
        isolation=values.get("isolation", ""),  # earlier versions had none
    )


def list_changes(present: Values, candidate: Values) -> list[tuple[str, Any, Any]]:
    """Return label, present and candidate value of each field that differs."""
    return [
        (field.label, present.get(field.name), candidate.get(field.name))
        for field in FIELDS
        if present.get(field.name) != candidate.get(field.name)
    ]
