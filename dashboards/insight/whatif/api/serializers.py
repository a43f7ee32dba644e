"""REST shapes of what-if analyses, derived from the table of fields."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from console.core.errors import Problem, Refused, expect_object
from dashboards.insight.whatif.actions import WhatIfRequest
from dashboards.insight.whatif.inputs import FIELDS, InputField
from endpoints.runs import RunState

_OWN = ("title", "trace", "begin", "end")


def _field(one: InputField) -> serializers.Field[Any, Any, Any, Any]:
    keywords: dict[str, Any] = {"required": False, "help_text": f"{one.label}. {one.help}".strip()}
    if one.choices:
        # No enumerations: the schema has those of the spec's fields already.
        keywords["help_text"] += f" One of {', '.join(one.choices)}."
        return serializers.CharField(**keywords)
    keywords["allow_null"] = one.blank
    if one.whole:
        return serializers.IntegerField(min_value=int(one.low), max_value=int(one.high), **keywords)
    return serializers.FloatField(min_value=one.low, max_value=one.high, **keywords)


class WhatIfValuesSerializer(serializers.Serializer[Any]):
    def get_fields(self) -> dict[str, Any]:
        return {**super().get_fields(), **{field.name: _field(field) for field in FIELDS}}


class NewWhatIfAnalysisSerializer(WhatIfValuesSerializer):
    title = serializers.CharField(required=False, default="", max_length=80, allow_blank=True)
    begin = serializers.DateTimeField(
        required=False, help_text="Begin of the recorded period; default: the newest hours."
    )
    end = serializers.DateTimeField(required=False, help_text="End of the recorded period.")
    trace = serializers.CharField(
        required=False,
        default="",
        allow_blank=True,
        help_text="Imported trace that is replayed; default: the recorded requests.",
    )


class WhatIfAnalysisSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    endpoint = serializers.CharField()
    title = serializers.CharField()
    begin = serializers.DateTimeField()
    end = serializers.DateTimeField()
    trace = serializers.CharField()
    present_values = WhatIfValuesSerializer()
    candidate_values = WhatIfValuesSerializer()
    state = serializers.ChoiceField(choices=RunState.choices)
    share = serializers.FloatField(help_text="Completed share, 0 to 1.")
    stage = serializers.CharField()
    message = serializers.CharField(help_text="Cause of the failure.")
    result = serializers.DictField(
        allow_null=True,
        help_text="Calibration, backtest and figures with 90 % intervals; null until the end. "
        "`present`, `candidate` and `change` are null where the backtest forbids an answer; "
        "`backtest.refusal` states why. `canary`: strategy canaries that ran in the period, or an "
        "empty string. `isolation`: effect of a changed cache isolation on each "
        "API key or key group, and prefixes that several of them sent.",
    )
    started_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)


def parse_request(data: Any) -> WhatIfRequest:
    """Convert the body; the action validates the values. Raise Refused."""
    data = expect_object(data)
    problems = [
        Problem(name, data[name], "Not a string.", "Send a string.", "type")
        for name in ("title", "trace")
        if not isinstance(data.get(name) or "", str)
    ]
    times: dict[str, Any] = {}
    for name in ("begin", "end"):
        if not data.get(name):
            continue
        try:
            times[name] = serializers.DateTimeField().to_internal_value(data[name])
        except serializers.ValidationError:
            remedy = "Send ISO 8601, such as 2026-11-23T10:00:00Z."
            text = "Not a date and time."
            problems.append(Problem(name, str(data[name])[:80], text, remedy, "type"))
    if problems:
        raise Refused(*problems)
    values = {name: value for name, value in data.items() if name not in _OWN}
    return WhatIfRequest(
        values,
        begin=times.get("begin"),
        end=times.get("end"),
        title=data.get("title") or "",
        trace=data.get("trace") or "",
    )
