"""REST views of /api/v1/endpoints/NAME/prefixes/: shared prompt prefixes and their names."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.api.serializers import ErrorSerializer
from endpoints import selectors as endpoint_selectors
from routing import actions, selectors
from routing.api.views import AWAY, RouterUnavailable


class PrefixGroupSerializer(serializers.Serializer[Any]):
    """`digest` is a keyed hash of the prefix; its text is not stored."""

    digest = serializers.CharField()
    name = serializers.CharField(allow_blank=True)
    requests = serializers.IntegerField()
    share = serializers.FloatField()
    tokens = serializers.IntegerField(help_text="Of the beginning, about.")
    workers = serializers.DictField(child=serializers.IntegerField(), help_text="Requests by it.")
    cached_share = serializers.FloatField(
        allow_null=True, help_text="Of these prompts' tokens, as engines reported; null: unknown."
    )


class PrefixesSerializer(serializers.Serializer[Any]):
    requests = serializers.IntegerField(help_text="The latest which had a prefix.")
    prefixes = PrefixGroupSerializer(many=True)


class PrefixNameSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(
        allow_blank=True, max_length=actions.MAX_NAME_LENGTH, help_text="Empty takes it away."
    )


class NamedSerializer(PrefixNameSerializer):
    digest = serializers.CharField()


@extend_schema(tags=["routing"])
class Prefixes(APIView):
    @extend_schema(
        summary="The beginnings that prompts share",
        description="Those with most tokens in common first, from the routers' latest records.",
        operation_id="endpoints_prefixes_list",
        responses={200: PrefixesSerializer, **AWAY},
    )
    def get(self, _request: Request, name: str) -> Response:
        seen = selectors.prefixes(endpoint_selectors.get(name))
        if seen.error:
            raise RouterUnavailable(seen.error)
        rows = [{**asdict(one), "workers": dict(one.workers)} for one in seen.found]
        return Response({"requests": seen.requests, "prefixes": rows})


@extend_schema(tags=["routing"])
class OnePrefix(APIView):
    @extend_schema(
        summary="Name a beginning",
        operation_id="endpoints_prefixes_name",
        request=PrefixNameSerializer,
        responses={200: NamedSerializer, 400: ErrorSerializer},
    )
    def put(self, request: Request, name: str, digest: str) -> Response:
        asked = PrefixNameSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        called = actions.name_prefix(request.user, name, digest, asked.validated_data["name"])
        return Response({"digest": digest, "name": called})
