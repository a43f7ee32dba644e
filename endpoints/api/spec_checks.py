"""POST /api/v1/fit/ and /preview/: capacity check and rendered workload of a spec. Nothing is
created.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from endpoints import teams
from endpoints.api.answers import operation
from endpoints.api.serializers import SpecSerializer
from endpoints.fit.estimate import FitVerdict
from endpoints.placement import capacity_check, model_hub, spec_context
from endpoints.placement.preview import preview
from endpoints.spec.endpoint_spec import EndpointSpec, parse
from endpoints.spec.rules import standing_errors, start_errors


class LineSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    value = serializers.FloatField()
    unit = serializers.CharField(help_text="bytes, tokens or a term.")
    formula = serializers.CharField(help_text="Derivation of the value.")


class FitFindingSerializer(serializers.Serializer[Any]):
    field = serializers.CharField(help_text="Field changed by the remedy.")
    message = serializers.CharField()
    remedy = serializers.CharField()
    code = serializers.CharField()
    blocks = serializers.BooleanField(help_text="vLLM or the cluster would refuse it.")


class JudgedSerializer(serializers.Serializer[Any]):
    machine = serializers.CharField(help_text='An instance type, "this machine", or "".')
    price_usd_hour = serializers.FloatField(allow_null=True)
    verdict = serializers.ChoiceField(choices=[str(verdict) for verdict in FitVerdict])
    capacity_tokens = serializers.IntegerField(help_text="Tokens whose KV fits beside the weights.")
    concurrency = serializers.FloatField(help_text="Concurrent requests at the longest context.")
    workers_per_machine = serializers.IntegerField()
    lines = LineSerializer(many=True)
    findings = FitFindingSerializer(many=True)


class RoutersSerializer(serializers.Serializer[Any]):
    replicas = serializers.IntegerField()
    cpus = serializers.FloatField(help_text="CPU requests of all routers together.")
    memory_bytes = serializers.IntegerField(help_text="Memory requests of all together.")
    usd_hour = serializers.FloatField(
        allow_null=True, help_text="Share of the first machine; null: unknown."
    )


class FitSerializer(serializers.Serializer[Any]):
    model = serializers.CharField()
    params = serializers.IntegerField(help_text="0: the size of the model is unknown.")
    judged = JudgedSerializer(many=True, help_text="In order of preference.")
    routers = RoutersSerializer(allow_null=True, help_text="null: they run on this machine.")


class FitView(APIView):
    write_somewhere = True
    serializer_class = FitSerializer

    @operation("Estimate how a spec fits", {200: FitSerializer}, 400, request=SpecSerializer)
    def post(self, request: Request) -> Response:
        """Estimates with their formulas, and the nearest fix for each problem."""
        return Response(document(capacity_check.check_capacity(parse_nameless(request.data))))


def parse_nameless(data: Any) -> EndpointSpec:
    """Return the spec in `data`; the name is optional. Raise SpecErrors."""
    if isinstance(data, Mapping):
        data = {"name": "unnamed", **data}
    return parse(data, spec_context.context().defaults)


def document(report: capacity_check.CapacityReport) -> dict[str, Any]:
    judged = [
        {
            "machine": machine.machine,
            "price_usd_hour": machine.price_usd_hour,
            "verdict": str(machine.fit.verdict),
            "capacity_tokens": machine.fit.capacity_tokens,
            "concurrency": round(machine.fit.concurrency, 2),
            "workers_per_machine": machine.fit.workers_per_machine,
            "lines": [
                {
                    "name": line.label,
                    "value": line.value,
                    "unit": line.unit,
                    "formula": line.formula,
                }
                for line in machine.fit.lines
            ],
            "findings": [asdict(finding) for finding in machine.fit.findings],
        }
        for machine in report.judged
    ]
    routers = asdict(report.routers) if report.routers else None
    return {"model": report.model, "params": report.params, "judged": judged, "routers": routers}


class PreviewSerializer(serializers.Serializer[Any]):
    command = serializers.ListField(child=serializers.CharField(), help_text="Of each worker.")
    env = serializers.DictField(child=serializers.CharField(), help_text="Secrets are not shown.")
    image = serializers.CharField(help_text='"" on this machine.')
    objects = serializers.ListField(
        child=serializers.DictField(), help_text="The workers' Kubernetes objects, on a cluster."
    )
    refused = serializers.CharField(
        help_text="Why it would not start, or the caller lacks a grant."
    )
    notes = serializers.ListField(child=serializers.CharField())


class PreviewView(APIView):
    write_somewhere = True
    serializer_class = PreviewSerializer

    @operation("Show what a spec would run", {200: PreviewSerializer}, 400, request=SpecSerializer)
    def post(self, request: Request) -> Response:
        """The workers' command line and environment and, on a cluster, their objects. A
        Hugging Face name is looked up for at most 2.5 s.
        """
        teams.require_any_team(request.user)
        spec = parse_nameless(request.data)
        context = teams.context_of(request.user, None)
        if name := model_hub.hub_name(spec):
            model_hub.lookup(name)
        refused = [*standing_errors(spec, context), *start_errors(spec, context)]
        previewed = preview(spec, refused)
        return Response(
            {
                "command": list(previewed.argv),
                "env": dict(previewed.env),
                "image": previewed.image,
                "objects": list(previewed.objects),
                "refused": previewed.refused,
                "notes": list(previewed.notes),
            }
        )
