"""/api/v1/models/: the model catalogue, and the check of one name before a spec is created."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.api.bodies import read_body
from console.clusters import selectors as clusters
from console.core.errors import Problem, Refused
from endpoints.api.answers import operation
from endpoints.fit.estimate import FitVerdict
from endpoints.fit.smallest_machine import Placement
from endpoints.placement import model_hub, model_list
from endpoints.placement.model_hub import HubModel, HubStatus
from endpoints.placement.model_list import ModelEntry
from endpoints.spec.validators import model_problem


class ModelPlacementSerializer(serializers.Serializer[Any]):
    verdict = serializers.CharField(help_text=f"One of: {', '.join(FitVerdict)}.")
    machine = serializers.CharField(help_text='An instance type, or "this machine".')
    gpu = serializers.CharField()
    gpus = serializers.IntegerField(help_text="Per worker; 0: CPU only.")
    max_context = serializers.IntegerField(help_text="Longest context that fits, in tokens.")


class ModelSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    local = serializers.BooleanField(help_text="The files are on the console's machine.")
    license = serializers.CharField(help_text='"": unknown.')
    gated = serializers.BooleanField(help_text="A download needs a token with access.")
    params = serializers.IntegerField(help_text="0: the model's shape is unknown here.")
    weight_bytes = serializers.IntegerField()
    max_context = serializers.IntegerField(help_text="Tokens.")
    here = ModelPlacementSerializer(
        allow_null=True, help_text="On this machine, or on the cluster's node pools."
    )
    instance = ModelPlacementSerializer(
        allow_null=True, help_text="On the cheapest instance type of the catalogue."
    )


class HubSerializer(serializers.Serializer[Any]):
    status = serializers.ChoiceField(choices=[str(status) for status in HubStatus])
    reason = serializers.CharField(help_text="Why the name was not checked.")
    license = serializers.CharField()
    gated = serializers.BooleanField()
    params = serializers.IntegerField()


class CheckedModelSerializer(ModelSerializer):
    hub = HubSerializer(allow_null=True, help_text="null: no Hugging Face name.")


class ModelNameSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    cluster = serializers.CharField(default="", allow_blank=True)


class Models(GenericAPIView[Any]):
    serializer_class = ModelSerializer

    @operation(
        "List known models",
        {200: ModelSerializer(many=True)},
        tag="models",
        parameters=[
            OpenApiParameter("search", str, description="Words of the name, licence or size."),
            OpenApiParameter("cluster", str, description="Compare with its node pools."),
        ],
    )
    def get(self, request: Request) -> Response:
        """Models whose size is known without a download, and what they fit on; none for an unknown
        cluster.
        """
        params = request.query_params
        cluster, models = params.get("cluster", ""), list[ModelEntry]()
        if not cluster or cluster in clusters.names():
            models = model_list.list_models(params.get("search", ""), cluster)
        page = self.paginate_queryset(models) or []
        return self.get_paginated_response([model_document(model) for model in page])


class CheckModel(APIView):
    write_somewhere = True
    serializer_class = CheckedModelSerializer

    @operation(
        "Check a model name",
        {200: CheckedModelSerializer},
        400,
        tag="models",
        request=ModelNameSerializer,
    )
    def post(self, request: Request) -> Response:
        """Looks the name up on Hugging Face, for at most 2.5 s. A name found to be missing is
        refused by later requests that create an endpoint.
        """
        data = read_body(ModelNameSerializer, request.data)
        name, cluster = data["name"], data["cluster"]
        problem = model_problem(name)
        if problem is not None:
            raise Refused(Problem("name", name, *problem))
        entry = model_list.find_model(name, _known_cluster(cluster))
        listing = model_hub.lookup(name) if model_hub.is_hub_name(name) else None
        return Response({**model_document(entry), "hub": _hub_document(listing)})


def _known_cluster(name: str) -> str:
    names = clusters.names()
    if name and name not in names:
        remedy = f"Choose one of: {', '.join(names) or 'none yet'}."
        message = f"Unknown cluster {name}."
        raise Refused(Problem("cluster", name, message, remedy, "unknown_cluster"))
    return name


def model_document(one: ModelEntry) -> dict[str, Any]:
    return {
        "name": one.name,
        "local": one.local,
        "license": one.licence,
        "gated": one.gated,
        "params": one.params,
        "weight_bytes": one.weight_bytes,
        "max_context": one.max_context,
        "here": _placement_document(one.here),
        "instance": _placement_document(one.instance),
    }


def _placement_document(one: Placement | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {
        "verdict": str(one.verdict),
        "machine": one.machine,
        "gpu": one.gpu,
        "gpus": one.gpus,
        "max_context": one.context,
    }


def _hub_document(found: HubModel | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "status": str(found.status),
        "reason": found.reason,
        "license": found.licence,
        "gated": found.gated,
        "params": found.params,
    }
