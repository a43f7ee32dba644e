"""A list of named things that can be watched: what the lists of several rooms have in common."""

from __future__ import annotations

from typing import Any, TypeVar

from django.db.models import Model
from django.http import StreamingHttpResponse
from rest_framework.generics import GenericAPIView
from rest_framework.mixins import ListModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from console.api import watch

Row = TypeVar("Row", bound=Model)


class WatchedList(ListModelMixin, GenericAPIView[Row]):
    """Not DRF's ListAPIView, whose `get` may answer nothing but a Response of its own."""

    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response | StreamingHttpResponse:
        """By name. Watched, it is all that the filters leave, not a page."""
        if watch.wanted(request):
            return watch.many(request, self._by_name)
        return self.list(request, *args, **kwargs)

    def _by_name(self) -> dict[str, Any]:
        found = self.filter_queryset(self.get_queryset())
        return {one["name"]: one for one in self.get_serializer(found, many=True).data}
