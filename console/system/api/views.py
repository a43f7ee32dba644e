"""/api/v1/system/processes/ and .../rounds/: managed programs and periodic jobs. Read only."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.core import disk
from console.system import rounds, selectors


class ProcessSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    purpose = serializers.CharField()
    state = serializers.CharField(help_text="supervisord state: running, backoff, ...")
    pid = serializers.IntegerField(help_text="0: not running.")
    started_at = serializers.DateTimeField(allow_null=True)
    restarts = serializers.IntegerField(help_text="Restarts after a crash.")
    last_restart_at = serializers.DateTimeField(allow_null=True)
    message = serializers.CharField(help_text="Cause of the failure.")
    last_line = serializers.CharField(help_text="Last log line of a failing process.")


class DiskSerializer(serializers.Serializer[Any]):
    path = serializers.CharField(help_text="EMBERLINE_VAR.")
    state = serializers.ChoiceField([state.value for state in disk.DiskState])
    total_bytes = serializers.IntegerField()
    free_bytes = serializers.IntegerField()
    inodes = serializers.IntegerField(help_text="0: no limit.")
    inodes_free = serializers.IntegerField()
    mounted_read_only = serializers.BooleanField(source="read_only")
    full_in_s = serializers.FloatField(
        allow_null=True, help_text="Seconds until full at the rate of the last hour."
    )
    text = serializers.CharField()
    remedy = serializers.CharField(help_text='"" while the state is ok.')


class SystemSerializer(serializers.Serializer[Any]):
    reason = serializers.CharField(help_text='"" when the processes are as seen now.')
    problem = serializers.CharField()
    remedy = serializers.CharField()
    processes = ProcessSerializer(many=True)
    disk = DiskSerializer(allow_null=True, help_text="null: the file system is not responding.")


class Processes(APIView):
    @extend_schema(tags=["system"], summary="List managed processes", responses=SystemSerializer)
    def get(self, _request: Request) -> Response:
        """While supervisord is unreachable: the last known state, with reason and remedy."""
        system = selectors.load_system()
        fields = {field: getattr(system, field) for field in system.__dataclass_fields__}
        return Response(SystemSerializer({**fields, "disk": selectors.disk_usage()}).data)


class RoundSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    purpose = serializers.CharField()
    state = serializers.ChoiceField(
        [state.value for state in rounds.RoundState],
        help_text="idle: nothing to do here. late: overdue.",
    )
    last_at = serializers.DateTimeField(allow_null=True, help_text="Time of the last run.")
    text = serializers.CharField()
    remedy = serializers.CharField(help_text='"" where nothing is to be done.')


class RoundsSerializer(serializers.Serializer[Any]):
    rounds = RoundSerializer(many=True)


class Rounds(APIView):
    @extend_schema(tags=["system"], summary="List background jobs", responses=RoundsSerializer)
    def get(self, _request: Request) -> Response:
        """Periodic jobs such as alert evaluation, rule loading and cost accounting: last run, and
        the cause if late.
        """
        return Response(RoundsSerializer({"rounds": rounds.list_rounds()}).data)
