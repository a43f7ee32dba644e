"""/api/v1/endpoints/NAME/advice/."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.api.bodies import read_body
from console.api.idempotency import idempotent
from console.api.serializers import ErrorSerializer
from dashboards.insight.advisor import actions, selectors
from dashboards.insight.advisor.api.serializers import AdviceSerializer, NewAdviceSerializer
from endpoints import selectors as endpoints

_TAGS = ["advice"]
_REFUSED = {400: ErrorSerializer, 404: ErrorSerializer, 409: ErrorSerializer}


class LatestAdvice(APIView):
    @extend_schema(
        tags=_TAGS,
        summary="Read the latest advice on an endpoint",
        responses={200: AdviceSerializer, 404: ErrorSerializer},
    )
    def get(self, _request: Request, name: str) -> Response:
        endpoints.get(name)
        latest = selectors.get_latest(name)
        if latest is None:
            raise selectors.no_advice(name)
        return Response(selectors.build_document(latest))

    @extend_schema(
        tags=_TAGS,
        summary="Compute advice on an endpoint",
        request=NewAdviceSerializer,
        responses={201: AdviceSerializer, **_REFUSED},
    )
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        """Replays the newest recorded requests under other strategies, replicas and cache sizes,
        one analysis at a time; the result is read with GET.
        """
        actions.start(request.user, name, read_body(NewAdviceSerializer, request.data))
        latest = selectors.get_latest(name)
        assert latest is not None
        return Response(selectors.build_document(latest), status=201)


class Cancel(APIView):
    @extend_schema(
        tags=_TAGS,
        summary="Cancel the computation of advice",
        request=None,
        responses={202: AdviceSerializer, 404: ErrorSerializer},
    )
    def post(self, request: Request, name: str) -> Response:
        """Takes effect within about a second; an ended computation stays unchanged."""
        return Response(selectors.build_document(actions.cancel(request.user, name)), status=202)
