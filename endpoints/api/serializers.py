"""Serializers of requests and responses, also used for the OpenAPI document.

Request serializers only describe: `spec.endpoint_spec` validates, so that errors are the same
everywhere.
"""

from __future__ import annotations

from typing import Any, Final

from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers

from console.api.serializers import ChangeSerializer
from endpoints import selectors
from endpoints.choices import Phase
from endpoints.manifest_actions import PlannedVerb
from endpoints.models import Endpoint, EndpointEvent, Revision
from endpoints.spec.endpoint_spec import nest
from endpoints.spec.field import Effect, SpecField
from endpoints.spec.fields import FIELDS, MAX_REPLICAS

_EFFECTS = {
    Effect.FIXED: "Cannot be changed later.",
    Effect.RESTART: "Changing it restarts workers, one at a time.",
    Effect.LIVE: "Applies live.",
}


def _described(field: SpecField) -> serializers.Field:
    keywords: dict[str, Any] = {
        "help_text": f"{field.help} {_EFFECTS[field.effect]}",
        "required": field.default is None,
    }
    if field.default is not None and field.kind not in (tuple, dict, list):
        keywords["default"] = field.default
        keywords.pop("required")
    if field.choices:
        return serializers.ChoiceField(choices=field.choices, **keywords)
    if field.kind is tuple:
        return serializers.ListField(child=serializers.CharField(), **keywords)
    if field.kind is list:
        return serializers.ListField(child=serializers.DictField(), **keywords)
    makers: dict[type, type[serializers.Field]] = {
        str: serializers.CharField,
        int: serializers.IntegerField,
        float: serializers.FloatField,
        bool: serializers.BooleanField,
        dict: serializers.DictField,
    }
    if field.kind in (int, float):
        keywords |= {"min_value": field.minimum, "max_value": field.maximum}
    return makers[field.kind](**keywords)


def _section(name: str, parts: dict[str, Any]) -> type[serializers.Serializer[Any]]:
    fields = {
        key: part
        if isinstance(part, serializers.Field)
        else _section(f"{name}_{key}", part)(required=False)
        for key, part in parts.items()
    }
    title = "".join(word.capitalize() for word in name.split("_"))
    return type(f"{title}Serializer", (serializers.Serializer,), fields)


SpecSerializer = _section("endpoint_spec", nest({f.path: _described(f) for f in FIELDS}))

_NOTE = serializers.CharField(
    required=False, max_length=500, help_text="Reason: kept with the revision and in the audit log."
)
# Request form of a spec; its sections keep their component names in the document.
WishSerializer = type("EndpointWishSerializer", (SpecSerializer,), {"note": _NOTE})
_TEAM = serializers.CharField(required=False, allow_null=True, help_text="Team slug.")
NewEndpointSerializer = type("NewEndpointSerializer", (WishSerializer,), {"team": _TEAM})


def _generation() -> serializers.IntegerField:
    return serializers.IntegerField(
        required=False, help_text="Reject with 409 unless the endpoint is at this generation."
    )


class ScaleSerializer(serializers.Serializer[Any]):
    replicas = serializers.IntegerField(
        min_value=0, max_value=MAX_REPLICAS, help_text="0 pauses the endpoint."
    )
    generation = _generation()


class MoveSerializer(serializers.Serializer[Any]):
    team = serializers.CharField(
        allow_null=True, allow_blank=True, help_text="Team slug; null: no team."
    )


class RollbackSerializer(serializers.Serializer[Any]):
    revision = serializers.IntegerField(help_text="Number of an earlier revision.")
    note = serializers.CharField(default="", allow_blank=True, max_length=500, help_text="Reason.")
    generation = _generation()


class StepSerializer(serializers.Serializer[Any]):
    code = serializers.CharField()
    state = serializers.ChoiceField(choices=["waiting", "active", "done", "failed"])
    started_at = serializers.CharField(help_text="ISO 8601, empty while waiting.")
    finished_at = serializers.CharField()
    message = serializers.CharField()


class WorkerSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    state = serializers.CharField()
    url = serializers.CharField()
    pid = serializers.IntegerField()
    started_at = serializers.DateTimeField(allow_null=True)
    restarts = serializers.IntegerField()
    simulated = serializers.BooleanField()
    message = serializers.CharField()
    reason = serializers.CharField(help_text="Reason for not being ready, if reported.")
    stage = serializers.CharField(help_text="Startup stage, on a cluster.")
    node = serializers.CharField(help_text="Node, on a cluster.")
    containers = serializers.ListField(child=serializers.CharField())


class ConditionSerializer(serializers.Serializer[Any]):
    """Condition of an object around the workers: rollout, route, certificate or autoscaler."""

    workload = serializers.CharField()
    part = serializers.CharField()
    ready = serializers.BooleanField(allow_null=True, help_text="null: unknown.")
    reason = serializers.CharField()
    message = serializers.CharField()
    since = serializers.FloatField(help_text="Epoch seconds; 0: unknown.")


class DriftSerializer(serializers.Serializer[Any]):
    """A field in the cluster that differs from the desired value."""

    workload = serializers.CharField()
    key = serializers.CharField(help_text="Key for adopting it.")
    object = serializers.CharField()
    path = serializers.CharField()
    wanted = serializers.JSONField()
    found = serializers.JSONField()
    manager = serializers.CharField(help_text="Field manager; empty if the field has no owner.")
    since = serializers.FloatField()


class AbandonedSerializer(serializers.Serializer[Any]):
    """Objects not removed from the lost cluster of an abandoned endpoint."""

    cluster = serializers.CharField()
    namespace = serializers.CharField()
    selector = serializers.CharField(help_text="Label selector of the remaining objects.")
    command = serializers.CharField()
    message = serializers.CharField()
    why = serializers.CharField(help_text="Evidence that the cluster is lost.")


class RolledBackSerializer(serializers.Serializer[Any]):
    """The failed revision and the revision restored."""

    failed = serializers.IntegerField()
    number = serializers.IntegerField()
    reason = serializers.CharField()
    message = serializers.CharField()
    at = serializers.CharField()


class HealSerializer(serializers.Serializer[Any]):
    workload = serializers.CharField(
        default="", allow_blank=True, help_text="Default: the workers."
    )


class AdoptSerializer(serializers.Serializer[Any]):
    key = serializers.CharField(help_text="Key of a drift entry.")


class EndpointSerializer(serializers.Serializer[Endpoint]):
    id = serializers.CharField()
    name = serializers.CharField()
    team = serializers.CharField(allow_null=True, help_text="Team slug; null: no team.")
    phase = serializers.CharField(help_text=f"One of {', '.join(Phase)}.")
    reason = serializers.CharField(help_text="A stable CamelCase code.")
    message = serializers.CharField(help_text="Cause; for a crash, the decisive log line.")
    remedy = serializers.CharField(help_text="The fix, empty if no action is needed.")
    detail = serializers.CharField(help_text="The last log lines of a failing worker.")
    generation = serializers.IntegerField(help_text="Number of spec changes.")
    observed_generation = serializers.IntegerField(
        help_text="Generation of phase, reason and steps."
    )
    url = serializers.CharField(help_text="URL for client requests.")
    replicas = serializers.IntegerField()
    ready_replicas = serializers.IntegerField()
    wanted_replicas = serializers.IntegerField(help_text="Desired by an autoscaler, or `replicas`.")
    served_revision = serializers.IntegerField(help_text="Last revision that served; 0: none.")
    public_url = serializers.CharField(help_text="URL outside the cluster, if exposed.")
    rolled_back = RolledBackSerializer(allow_null=True)
    conditions = ConditionSerializer(many=True)
    drift = DriftSerializer(many=True)
    simulated = serializers.BooleanField()
    phase_since = serializers.DateTimeField()
    seen_at = serializers.DateTimeField(help_text="Time of the last observation.")
    created_at = serializers.DateTimeField()
    changed_at = serializers.DateTimeField()
    created_by = serializers.CharField()
    spec = SpecSerializer()
    steps = StepSerializer(many=True)
    workers = WorkerSerializer(many=True)

    def to_representation(self, instance: Endpoint) -> dict[str, Any]:
        return selectors.document(instance)


class EventSerializer(serializers.ModelSerializer[EndpointEvent]):
    reason = serializers.CharField(source="kind")

    class Meta:
        model = EndpointEvent
        fields = (
            "id",
            "reason",
            "severity",
            "origin",
            "subject",
            "message",
            "count",
            "first_at",
            "last_at",
        )


class RevisionSerializer(serializers.ModelSerializer[Revision]):
    class Meta:
        model = Revision
        fields = ("number", "verb", "note", "author", "created_at", "spec")


class NoteSerializer(serializers.Serializer[Any]):
    """Advisory on a manifest."""

    field = serializers.CharField(help_text="Field path in the object.")
    code = serializers.CharField()
    kind = serializers.CharField(help_text="warning, or kept: applies to AWS only.")
    message = serializers.CharField()
    remedy = serializers.CharField()


class AppliedObjectSerializer(serializers.Serializer[Any]):
    object = serializers.CharField()
    name = serializers.CharField(help_text="The endpoint.")
    action = serializers.ChoiceField(choices=[str(verb) for verb in PlannedVerb])
    changes = ChangeSerializer(many=True)
    notes = NoteSerializer(many=True)


class AppliedSerializer(serializers.Serializer[Any]):
    dry_run = serializers.BooleanField()
    results = AppliedObjectSerializer(many=True)


class WouldSerializer(AppliedObjectSerializer):
    """Dry-run response: the changes that would be made."""

    dry_run = serializers.BooleanField()


NEW_ENDPOINT: Final = [
    OpenApiExample(
        "Minimal", value={"name": "chat", "model": "smollm2-135m-instruct"}, request_only=True
    ),
    OpenApiExample(
        "Two workers sharing a warm cache",
        value={
            "name": "documents",
            "model": "smollm2-135m-instruct",
            "replicas": 2,
            "cache": {"l1": {"enabled": True, "size_gib": 0.5}},
            "routing": {"enabled": True, "strategy": "kvaware"},
        },
        request_only=True,
    ),
]
