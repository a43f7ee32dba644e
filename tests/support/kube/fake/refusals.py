"""Error responses of the API server."""

from __future__ import annotations

from typing import Any

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class ApiError(Exception):
    def __init__(
        self,
        code: int,
        message: str,
        reason: str | None = None,
        causes: list[dict[str, Any]] | None = None,
        **details: Any,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = REASONS.get(code, "") if reason is None else reason
        self.details = {**details, **({"causes": causes} if causes else {})}

    def status(self) -> dict[str, Any]:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "details": self.details,
            "code": self.code,
        }


def invalid(
    kind: str, name: str, field: str, message: str, what: str = "Invalid value"
) -> ApiError:
    causes = [{"reason": f"FieldValue{what.split()[0]}", "message": message, "field": field}]
    text = f'{kind} "{name}" is invalid: {field}: {what}: {message}'
    return ApiError(422, text, causes=causes, name=name, kind=kind)
