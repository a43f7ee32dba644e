"""REST shapes of benchmarks, derived from the job's field table."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from console.api.bodies import read_body
from dashboards.benchmarks.actions import CACHES, BenchmarkRequest
from dashboards.benchmarks.generator.job import APIS, FIELDS, MODES, WORKLOADS
from endpoints.runs import RunState


def _number(one: Any) -> serializers.Field[Any, Any, Any, Any]:
    unit = f" ({one.unit})" if one.unit else ""
    bounds: dict[str, Any] = {
        "required": False,
        "default": int(one.default) if one.whole else one.default,
        "initial": int(one.default) if one.whole else one.default,
        "label": f"{one.label}{unit}",
        "help_text": f"{one.label}{unit}. {one.help}".strip(),
    }
    if one.whole:
        low, high = int(one.low), int(one.high)
        return serializers.IntegerField(min_value=low, max_value=high, **bounds)
    return serializers.FloatField(min_value=one.low, max_value=one.high, **bounds)


class JobSerializer(serializers.Serializer[Any]):
    workload = serializers.ChoiceField(choices=list(WORKLOADS.items()), default="chat")
    mode = serializers.ChoiceField(choices=list(MODES.items()), default="rate")
    api = serializers.ChoiceField(
        choices=list(APIS.items()),
        default="chat",
        initial="chat",
        label="API",
        help_text="Models without a chat template support completions only.",
    )

    def get_fields(self) -> dict[str, Any]:
        return {**super().get_fields(), **{field.name: _number(field) for field in FIELDS}}


class NewBenchmarkSerializer(JobSerializer):
    title = serializers.CharField(required=False, default="", max_length=80, allow_blank=True)
    caches = serializers.ChoiceField(choices=list(CACHES.items()), default="fresh")
    second = serializers.CharField(
        required=False, default="", allow_blank=True, help_text="Endpoint measured after the first."
    )
    trace = serializers.CharField(
        required=False,
        default="",
        allow_blank=True,
        help_text="Trace in Mooncake format; default: a built-in sample.",
    )


class BenchmarkSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    endpoint = serializers.CharField()
    title = serializers.CharField()
    state = serializers.ChoiceField(choices=RunState.choices)
    stage = serializers.CharField(help_text="Reason for waiting while queued.")
    message = serializers.CharField(help_text="Cause of the failure.")
    simulated = serializers.BooleanField(
        help_text="Workers are simulated; times are not measurements."
    )
    after = serializers.UUIDField(allow_null=True, help_text="Preceding run of a pair.")
    job = serializers.DictField(help_text="Parameters of the run.")
    trace_digest = serializers.CharField()
    endpoint_facts = serializers.DictField(help_text="State of the endpoint at the start.")
    progress = serializers.DictField(
        help_text="Latest report of the load generator, with its time series."
    )
    result = serializers.DictField(
        allow_null=True, help_text="Percentiles; null until the run ends."
    )
    started_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)


class LoadedSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    phase = serializers.CharField()
    workers = serializers.ListField(child=serializers.CharField())
    strategy = serializers.CharField()
    where = serializers.CharField()
    simulated = serializers.BooleanField()
    in_flight = serializers.IntegerField(
        allow_null=True, help_text="In-flight requests of others at the last check."
    )


class OutlookSerializer(serializers.Serializer[Any]):
    requests = serializers.IntegerField()
    prompt_tokens = serializers.IntegerField()
    answer_tokens = serializers.IntegerField()
    seconds = serializers.FloatField()
    ends_by = serializers.CharField(help_text="First limit that is reached.")
    at_most = serializers.BooleanField(
        help_text="The figures are upper limits: the load depends on response times."
    )
    requests_s = serializers.FloatField()
    endpoints = LoadedSerializer(many=True)


class SamplesSerializer(serializers.Serializer[Any]):
    columns = serializers.ListField(child=serializers.CharField())
    rows = serializers.ListField(child=serializers.ListField())


class ComparedSerializer(serializers.Serializer[Any]):
    a = serializers.FloatField(allow_null=True)
    b = serializers.FloatField(allow_null=True)
    change = serializers.FloatField(allow_null=True)
    low = serializers.FloatField(allow_null=True)
    high = serializers.FloatField(allow_null=True)
    sure = serializers.BooleanField(help_text="The confidence interval excludes 0.")
    better = serializers.BooleanField(help_text="Significantly lower in B.")

    def get_fields(self) -> dict[str, Any]:
        """Add `label`, which cannot be declared: serializers have such an attribute."""
        return {**super().get_fields(), "label": serializers.CharField()}


class ComparisonSerializer(serializers.Serializer[Any]):
    a = serializers.UUIDField()
    b = serializers.UUIDField()
    verdict = serializers.CharField()
    confident = serializers.BooleanField(help_text="The runs are comparable.")
    caveats = serializers.ListField(child=serializers.CharField())
    rows = ComparedSerializer(many=True)


def parse_request(data: Any) -> BenchmarkRequest:
    """Return the request in a body. Raise `Refused`."""
    values = read_body(NewBenchmarkSerializer, data)
    own = {name: values.pop(name) for name in ("title", "caches", "second", "trace")}
    return BenchmarkRequest(values, **own)
