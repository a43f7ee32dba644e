"""REST shapes of what-if analyses, derived from the table of fields."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from console.api.bodies import read_body
from dashboards.insight.whatif.actions import WhatIfRequest
from dashboards.insight.whatif.inputs import WhatIfValuesSerializer
from endpoints.runs import RunState


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
    """Return the request in a body. Raise `Refused`."""
    values = read_body(NewWhatIfAnalysisSerializer, data)
    own = {name: values.pop(name) for name in ("title", "trace", "begin", "end") if name in values}
    return WhatIfRequest(values, **own)
