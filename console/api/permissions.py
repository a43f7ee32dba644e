"""REST rights by method: a viewer reads, an operator writes.

A view may say otherwise with `read_role` or `write_role`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from console.accounts.models import Role
from console.accounts.permissions import allows

if TYPE_CHECKING:  # DRF imports this module while it is itself being imported
    from rest_framework.views import APIView


class RolePermission(BasePermission):
    message = "Your role, or the role of this token, does not allow this."

    def has_permission(self, request: Request, view: APIView) -> bool:
        if request.method in SAFE_METHODS:
            return allows(request.user, getattr(view, "read_role", Role.VIEWER.value))
        return allows(request.user, getattr(view, "write_role", Role.OPERATOR.value))
