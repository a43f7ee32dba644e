"""A router that cannot be asked, as every view of this room says it."""

from __future__ import annotations

from rest_framework import status
from rest_framework.exceptions import APIException

from console.api.serializers import ErrorSerializer


class RouterAway(APIException):
    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_code = "router_away"


AWAY = {503: ErrorSerializer}
