"""REST rights by method: a viewer reads, an operator writes, each for the thing the route names.

A view may say otherwise: `read_role`, `write_role`; `write_somewhere` where the role for any team
will do and the action asks for which. Reading what is nobody's needs some right somewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from console.accounts import gate
from console.accounts.models import Role, User
from console.accounts.permissions import allows, allows_somewhere

if TYPE_CHECKING:  # DRF imports this module while it is itself being imported
    from rest_framework.views import APIView


class RolePermission(BasePermission):
    message = "Your role, or the role of this token, does not allow this."

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Http404 for a thing of a team the caller has no part in."""
        user = request.user
        if not isinstance(user, User):
            return False
        reading = request.method in SAFE_METHODS
        default = Role.VIEWER if reading else Role.OPERATOR
        role = str(getattr(view, "read_role" if reading else "write_role", default.value))
        if role == Role.MEMBER:
            return allows(user, role)
        asked = request._request
        gate.check(asked, user)
        thing = gate.subject(asked) if not allows(user, role) else None
        if thing is not None:
            return allows(user, role, of=thing)
        somewhere = getattr(view, "write_somewhere", False) or role == Role.VIEWER
        return allows_somewhere(user, role) if somewhere else allows(user, role)
