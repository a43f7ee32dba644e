"""REST views of an endpoint's strategy canary: /api/v1/endpoints/NAME/canary/."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.api.bodies import read_body
from console.api.serializers import ErrorSerializer
from endpoints import selectors as endpoint_selectors
from endpoints.router.canary import actions, selectors
from endpoints.router.models import Canary, CanaryState
from routing.analysis.canary import BETTER, COLLECTING, NO_DIFFERENCE, WORSE, CanaryResult

VERDICTS = (COLLECTING, NO_DIFFERENCE, BETTER, WORSE)


class CanaryNoteSerializer(serializers.Serializer[Any]):
    note = serializers.CharField(required=False, allow_blank=True, max_length=500)


class CanaryArmSerializer(serializers.Serializer[Any]):
    """Totals of one arm. Null: nothing measured or reported."""

    strategy = serializers.CharField()
    requests = serializers.IntegerField()
    sessions = serializers.IntegerField(help_text="Ended sessions, on which the test is based.")
    failed_requests = serializers.IntegerField(source="errors")
    error_rate = serializers.FloatField(allow_null=True)
    hit_rate = serializers.FloatField(allow_null=True)
    ttft_p50_s = serializers.FloatField(allow_null=True)
    ttft_p90_s = serializers.FloatField(allow_null=True)
    ttft_p99_s = serializers.FloatField(allow_null=True)


class CanaryArmsSerializer(serializers.Serializer[Any]):
    control = CanaryArmSerializer()
    candidate = CanaryArmSerializer()


class CanaryIntervalSerializer(serializers.Serializer[Any]):
    """Candidate minus control, with bounds that hold at all times at once."""

    difference = serializers.FloatField()
    low = serializers.FloatField()
    high = serializers.FloatField()


class CanaryIntervalsSerializer(serializers.Serializer[Any]):
    """Null: too few ended sessions. `ttft`: of the natural logarithm of TTFT in seconds;
    `hit_rate`, `error_rate`: of the shares. Means over sessions.
    """

    ttft = CanaryIntervalSerializer(allow_null=True)
    hit_rate = CanaryIntervalSerializer(source="hit", allow_null=True)
    error_rate = CanaryIntervalSerializer(source="errors", allow_null=True)


class CanarySerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    state = serializers.ChoiceField(CanaryState.choices)
    strategy = serializers.CharField()
    control = serializers.CharField()
    share = serializers.FloatField()
    session_key = serializers.CharField(allow_blank=True)
    settle_s = serializers.FloatField()
    started_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)
    ended_reason = serializers.CharField(allow_blank=True)
    revision = serializers.IntegerField(allow_null=True)
    verdict = serializers.ChoiceField(VERDICTS)
    message = serializers.CharField(allow_blank=True)
    error = serializers.CharField(allow_blank=True, help_text="Routers without a result.")
    collected_at = serializers.DateTimeField(allow_null=True)
    arms = CanaryArmsSerializer()
    intervals = CanaryIntervalsSerializer()


class CanaryStateSerializer(serializers.Serializer[Any]):
    """The running canary, else the last one; null before the first."""

    canary = CanarySerializer(allow_null=True)


def show(canary: Canary) -> dict[str, Any]:
    results = selectors.result(canary)
    names = [str(name) for name in CanarySerializer().fields]
    fields = {name: getattr(canary, name) for name in names if hasattr(canary, name)}
    fields |= {"arms": show_arms(canary, results), "intervals": results.intervals}
    return dict(CanarySerializer(fields).data)


def show_arms(canary: Canary, found: CanaryResult) -> dict[str, dict[str, Any]]:
    strategies = selectors.strategies(canary)
    return {name: {"strategy": strategies[name], **arm.data()} for name, arm in found.arms.items()}


@extend_schema(tags=["routing"])
class CanaryView(APIView):
    @extend_schema(
        summary="Read the strategy canary",
        operation_id="endpoints_canary_get",
        responses=CanaryStateSerializer,
    )
    def get(self, _request: Request, name: str) -> Response:
        canary = selectors.latest(endpoint_selectors.get(name))
        return Response({"canary": None if canary is None else show(canary)})

    @extend_schema(
        summary="Start a strategy canary",
        description="A share of the sessions goes by the candidate; routers reload live. It stops "
        "by itself when it is worse.",
        operation_id="endpoints_canary_start",
        request=actions.CanaryStartSerializer,
        responses={201: CanarySerializer, 400: ErrorSerializer, 409: ErrorSerializer},
    )
    def post(self, request: Request, name: str) -> Response:
        made = actions.start(request.user, name, request.data)
        return Response(show(made), status=status.HTTP_201_CREATED)

    @extend_schema(
        summary="Stop the strategy canary",
        operation_id="endpoints_canary_stop",
        responses={200: CanarySerializer, 409: ErrorSerializer},
    )
    def delete(self, request: Request, name: str) -> Response:
        return Response(show(actions.stop(request.user, name)))


@extend_schema(tags=["routing"])
class CanaryPromotion(APIView):
    @extend_schema(
        summary="Make the candidate the endpoint's strategy",
        description="Writes a revision of the endpoint, which can be rolled back.",
        operation_id="endpoints_canary_promote",
        request=CanaryNoteSerializer,
        responses={200: CanarySerializer, 409: ErrorSerializer},
    )
    def post(self, request: Request, name: str) -> Response:
        note = read_body(CanaryNoteSerializer, request.data).get("note", "")
        return Response(show(actions.promote(request.user, name, note)))
