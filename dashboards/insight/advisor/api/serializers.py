"""REST shapes of advice."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from dashboards.insight.advisor.actions import ASSUMPTIONS
from dashboards.insight.advisor.formulas.gains import ADVISED, TRADE_OFF, UNCLEAR, WORSE
from dashboards.insight.whatif.api.serializers import WhatIfValuesSerializer

VERDICTS = (ADVISED, TRADE_OFF, UNCLEAR, WORSE)


class NewAdviceSerializer(WhatIfValuesSerializer):
    """Assumptions: values that replace or complete those of the console."""

    def get_fields(self) -> dict[str, Any]:
        fields = super().get_fields()
        return {name: fields[name] for name in ASSUMPTIONS}


class GainSerializer(serializers.Serializer[Any]):
    value = serializers.FloatField()
    low = serializers.FloatField(help_text="Bounds of the 90 % interval.")
    high = serializers.FloatField()


class AdviceChangeSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    before = serializers.JSONField()
    after = serializers.JSONField()


class AdviceRowSerializer(serializers.Serializer[Any]):
    key = serializers.CharField()
    kind = serializers.CharField(help_text="strategy, replicas, cache, layout or salts.")
    changes = AdviceChangeSerializer(many=True)
    verdict = serializers.CharField(help_text=f"One of {', '.join(VERDICTS)}.")
    confidence = serializers.CharField(help_text="high, medium or low.")
    why = serializers.CharField(help_text="Evidence of the confidence.")
    money = GainSerializer(allow_null=True, help_text="USD per month; null: no price.")
    bill = serializers.FloatField(
        allow_null=True, help_text="Change of what workers and tiers cost, USD per month."
    )
    ttft_p50 = GainSerializer(allow_null=True, help_text="Relative change.")
    ttft_p90 = GainSerializer(allow_null=True, help_text="Relative change.")
    ttft_p90_s = serializers.ListField(
        child=serializers.FloatField(), allow_null=True, help_text="Before and after."
    )
    hit_rate = GainSerializer(allow_null=True, help_text="Difference.")
    memory_gib = serializers.FloatField(help_text="More memory, of all workers and L2 together.")
    fields = serializers.DictField()  # type: ignore[assignment]
    text = serializers.CharField(allow_blank=True)
    note = serializers.CharField(allow_blank=True, help_text="Why money is unknown.")
    apply = serializers.ListField(
        child=serializers.CharField(), help_text="Pages with the change filled in."
    )


class AdviceSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    endpoint = serializers.CharField()
    generation = serializers.IntegerField(help_text="Of the surveyed spec.")
    begin = serializers.DateTimeField(help_text="Recorded period that was replayed.")
    end = serializers.DateTimeField()
    state = serializers.CharField(help_text="As of a what-if analysis.")
    share = serializers.FloatField(help_text="Completed share, 0 to 1.")
    stage = serializers.CharField()
    message = serializers.CharField(help_text="Cause of the failure.")
    refusal = serializers.CharField(help_text="Why the recording gives no answer.")
    notes = serializers.ListField(child=serializers.CharField())
    backtest = serializers.DictField(allow_null=True)
    present_values = WhatIfValuesSerializer()
    rows = AdviceRowSerializer(many=True)
    sizes = serializers.DictField(
        allow_null=True, help_text="Hit rate, TTFT and worth by L1 and L2 size; value of a GiB."
    )
    applied = serializers.ListField(
        child=serializers.DictField(),
        help_text="Rows that a revision, a cache tier or callers applied, with the outcome.",
    )
    started_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)
