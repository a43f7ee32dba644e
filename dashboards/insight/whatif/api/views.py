"""/api/v1/endpoints/NAME/what-if/."""

from __future__ import annotations

from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.api.idempotency import idempotent
from console.api.parameters import Filter
from console.api.serializers import ErrorSerializer
from dashboards.insight.whatif import actions, inputs, selectors
from dashboards.insight.whatif.api.serializers import (
    NewWhatIfAnalysisSerializer,
    WhatIfAnalysisSerializer,
    WhatIfValuesSerializer,
    parse_request,
)
from dashboards.insight.whatif.models import WhatIf
from endpoints import selectors as endpoints
from endpoints.runs import RunState

_TAGS = ["what-if"]
_REFUSED = {400: ErrorSerializer, 404: ErrorSerializer, 409: ErrorSerializer}


class WhatIfs(GenericAPIView[WhatIf]):
    serializer_class = WhatIfAnalysisSerializer
    filters = (Filter("state", "state", "Only this state.", choices=RunState.values),)

    def get_queryset(self) -> QuerySet[WhatIf]:
        return selectors.list_runs(self.kwargs["name"])

    @extend_schema(
        tags=_TAGS,
        summary="List an endpoint's what-if analyses",
        responses=WhatIfAnalysisSerializer(many=True),
    )
    def get(self, _request: Request, name: str) -> Response:
        endpoints.get(name)
        page = self.paginate_queryset(self.filter_queryset(self.get_queryset())) or []
        return self.get_paginated_response([selectors.build_document(row) for row in page])

    @extend_schema(
        tags=_TAGS,
        summary="Start a what-if analysis",
        request=NewWhatIfAnalysisSerializer,
        responses={201: WhatIfAnalysisSerializer, **_REFUSED},
    )
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        """Replays the endpoint's recorded requests through a calibrated model of its workers, as it
        is and with the given values. Omitted values stay as they are.
        """
        made = actions.start(request.user, name, parse_request(request.data))
        return Response(selectors.build_document(selectors.get_run(name, made.pk)), status=201)


class Present(APIView):
    @extend_schema(
        tags=_TAGS,
        summary="Read an endpoint's present what-if values",
        responses={200: WhatIfValuesSerializer, 404: ErrorSerializer},
    )
    def get(self, _request: Request, name: str) -> Response:
        return Response(inputs.present_values(endpoints.get(name)))


class OneWhatIf(APIView):
    @extend_schema(
        tags=_TAGS,
        summary="Read a what-if analysis",
        responses={200: WhatIfAnalysisSerializer, 404: ErrorSerializer},
    )
    def get(self, _request: Request, name: str, run: UUID) -> Response:
        return Response(selectors.build_document(selectors.get_run(name, run)))

    @extend_schema(
        tags=_TAGS,
        summary="Delete a what-if analysis",
        request=None,
        responses={204: None, **_REFUSED},
    )
    def delete(self, request: Request, name: str, run: UUID) -> Response:
        actions.delete(request.user, selectors.get_run(name, run))
        return Response(status=204)


class Cancel(APIView):
    @extend_schema(
        tags=_TAGS,
        summary="Cancel a what-if analysis",
        request=None,
        responses={202: WhatIfAnalysisSerializer, 404: ErrorSerializer},
    )
    def post(self, request: Request, name: str, run: UUID) -> Response:
        """Takes effect within about a second; an ended analysis stays unchanged."""
        actions.cancel(request.user, selectors.get_run(name, run))
        return Response(selectors.build_document(selectors.get_run(name, run)), status=202)
