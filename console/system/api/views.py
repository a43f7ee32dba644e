"""/api/v1/system/processes/: every managed program as seen now. Read only."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.system import selectors


class ProcessSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    purpose = serializers.CharField()
    state = serializers.CharField(help_text="As supervisord says it: running, backoff, ...")
    pid = serializers.IntegerField(help_text="0: does not run.")
    started_at = serializers.DateTimeField(allow_null=True)
    restarts = serializers.IntegerField(help_text="Deaths after which it came back.")
    last_restart_at = serializers.DateTimeField(allow_null=True)
    message = serializers.CharField(help_text="Why it does not stay up.")
    last_line = serializers.CharField(help_text="Of its log, while it does not stay up.")


class SystemSerializer(serializers.Serializer[Any]):
    reason = serializers.CharField(help_text='"" when the processes are as seen now.')
    problem = serializers.CharField()
    remedy = serializers.CharField()
    processes = ProcessSerializer(many=True)


class Processes(APIView):
    @extend_schema(tags=["system"], summary="List managed processes", responses=SystemSerializer)
    def get(self, _request: Request) -> Response:
        """While supervisord is away: what was last seen, with the reason and the remedy."""
        return Response(SystemSerializer(selectors.system()).data)
