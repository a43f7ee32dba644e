"""Convert triggers of an autoScalingSpec to KEDA's format and back.

A round trip is lossless except for defaults. `manifest_of` returns None for trigger types that the
manifest does not support.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CLOUDWATCH, PROMETHEUS = "aws-cloudwatch", "prometheus"
Trigger = dict[str, Any]
_METRIC_TYPES = {"Average": "AverageValue", "Value": "Value"}
_MANIFEST_TYPES = {keda: ours for ours, keda in _METRIC_TYPES.items()}
# Manifest field, KEDA field, manifest default (None: omitted if absent).
_CLOUDWATCH: tuple[tuple[str, str, Any], ...] = (
    ("namespace", "namespace", None),
    ("metricName", "metricName", None),
    ("targetValue", "targetMetricValue", None),
    ("minValue", "minMetricValue", 0),
    ("activationTargetValue", "activationTargetMetricValue", 0),
    ("metricCollectionStartTime", "metricCollectionTime", 300),
    ("metricCollectionPeriod", "metricStatPeriod", 300),
    ("metricStat", "metricStat", "Average"),
)
_PROMETHEUS: tuple[tuple[str, str, Any], ...] = (
    ("serverAddress", "serverAddress", None),
    ("query", "query", None),
    ("targetValue", "threshold", None),
    ("activationTargetValue", "activationThreshold", 0),
    ("customHeaders", "customHeaders", None),
    ("namespace", "namespace", None),
)
_NUMBERS = frozenset(
    {
        "targetValue",
        "minValue",
        "activationTargetValue",
        "metricCollectionStartTime",
        "metricCollectionPeriod",
    }
)


def triggers_of_manifest(scaling: Mapping[str, Any], region: str) -> list[Trigger]:
    triggers = [_cloudwatch(item, region) for item in list_triggers(scaling, "cloudWatchTrigger")]
    return triggers + [_prometheus(item) for item in list_triggers(scaling, "prometheusTrigger")]


def list_triggers(scaling: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    many = scaling.get(f"{name}List")
    if many:
        return list(many)
    return [scaling[name]] if scaling.get(name) else []


def manifest_of(triggers: list[Trigger]) -> dict[str, Any] | None:
    """Return the autoScalingSpec fields, None if they cannot express the triggers."""
    clouds: list[Trigger] = []
    proms: list[Trigger] = []
    for trigger in triggers:
        if trigger.get("type") == CLOUDWATCH and not proms:
            clouds.append(_manifest_trigger(trigger, _CLOUDWATCH))
        elif trigger.get("type") == PROMETHEUS:
            proms.append(_manifest_trigger(trigger, _PROMETHEUS))
        else:
            return None
    part: dict[str, Any] = {}
    for name, items in (("cloudWatchTrigger", clouds), ("prometheusTrigger", proms)):
        if len(items) == 1:
            part[name] = items[0]
        elif items:
            part[f"{name}List"] = items
    return part


def _cloudwatch(item: Mapping[str, Any], region: str) -> Trigger:
    metadata = _metadata(item, _CLOUDWATCH)
    dimensions = item.get("dimensions") or []
    if dimensions:
        metadata["dimensionName"] = ";".join(dimension["name"] for dimension in dimensions)
        metadata["dimensionValue"] = ";".join(dimension["value"] for dimension in dimensions)
    if region:
        metadata["awsRegion"] = region
    return _trigger(CLOUDWATCH, item, metadata)


def _prometheus(item: Mapping[str, Any]) -> Trigger:
    return _trigger(PROMETHEUS, item, _metadata(item, _PROMETHEUS))


def _trigger(kind: str, item: Mapping[str, Any], metadata: dict[str, str]) -> Trigger:
    trigger: Trigger = {
        "type": kind,
        "metadata": metadata,
        "metricType": _METRIC_TYPES[item.get("metricType", "Average")],
        "useCachedMetrics": item.get("useCachedMetrics", True),
    }
    return {"name": item["name"], **trigger} if item.get("name") else trigger


def _metadata(item: Mapping[str, Any], fields: tuple[tuple[str, str, Any], ...]) -> dict[str, str]:
    metadata = {}
    for ours, kedas, default in fields:
        value = item.get(ours, default)
        if value not in (None, ""):
            metadata[kedas] = f"{value:.15g}" if isinstance(value, float) else str(value)
    return metadata


def _manifest_trigger(trigger: Trigger, fields: tuple[tuple[str, str, Any], ...]) -> Trigger:
    metadata = trigger.get("metadata", {})
    item: Trigger = {}
    if trigger.get("name"):
        item["name"] = trigger["name"]
    for ours, kedas, default in fields:
        value = metadata.get(kedas)
        if value is not None and str(value) != str(default):
            item[ours] = _number(value) if ours in _NUMBERS else value
    if metadata.get("dimensionName"):
        names = metadata["dimensionName"].split(";")
        values = str(metadata.get("dimensionValue", "")).split(";")
        item["dimensions"] = [
            {"name": name, "value": value} for name, value in zip(names, values, strict=False)
        ]
    metric = _MANIFEST_TYPES.get(trigger.get("metricType", "AverageValue"))
    if metric and metric != "Average":
        item["metricType"] = metric
    if trigger.get("useCachedMetrics") is False:
        item["useCachedMetrics"] = False
    return item


def _number(value: Any) -> Any:
    text = str(value)
    try:
        return int(text) if text.lstrip("+-").isdecimal() else float(text)
    except ValueError:
        return value
