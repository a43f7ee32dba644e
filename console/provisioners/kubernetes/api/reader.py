"""GETs and review POSTs of one cluster survey under a shared deadline.

Each query has a typed result: the response, its absence, or the reason it failed. An unreachable
cluster or rejected credentials are errors; a single forbidden list is a result. Read-only.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from console.provisioners.base import PermanentError, TemporaryError
from console.provisioners.kubernetes.api.access import ClusterAccess

PAGE = 500
MAX_PAGES = 20  # 10,000 objects; more would load the cluster every minute
_CHUNK = 64 * 1024
_MOST_BYTES = 64 * 2**20
_HEADERS = {"Accept": "application/json", "Content-Type": "application/json"}


class QueryFailed(Exception):
    """This query has no result; `status` 0 means a timeout."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    @property
    def refused(self) -> bool:
        return self.status == 403


@dataclass(slots=True)
class Reader:
    """Reader of a cluster's objects for the survey. `budget_s` covers all queries together, so that
    a survey fits into one task.
    """

    access: ClusterAccess
    budget_s: float = 40.0
    _until: float = field(init=False)

    def __post_init__(self) -> None:
        self._until = time.monotonic() + self.budget_s

    def get(self, path: str, **query: str) -> dict[str, Any]:
        document = self._ask("GET", f"{path}?{urlencode(query)}" if query else path, None)
        if document is None:
            raise QueryFailed(404, f"{path} does not exist")
        return document

    def find(self, path: str) -> dict[str, Any] | None:
        """Return the object, None if the cluster does not serve the path."""
        return self._ask("GET", path, None)

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        document = self._ask("POST", path, body)
        if document is None:
            raise QueryFailed(404, f"{path} does not exist")
        return document

    def items(self, path: str, **query: str) -> Iterator[dict[str, Any]]:
        """Yield every object of a list, page by page; raise `QueryFailed` beyond `MAX_PAGES`."""
        token = ""
        for _ in range(MAX_PAGES):
            more = {"continue": token} if token else {}
            page = self.get(path, limit=str(PAGE), **more, **query)
            yield from page.get("items") or []
            token = (page.get("metadata") or {}).get("continue", "")
            if not token:
                return
        raise QueryFailed(0, f"more than {PAGE * MAX_PAGES} objects")

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any] | None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise QueryFailed(0, f"the cluster did not respond within {self.budget_s:g} s")
        status, content = self._send(method, path, body, min(left, self.access.deadline_s))
        if status == 404:
            return None
        if status == 401:
            text = "The cluster rejects the credentials (401)."
            remedy = "They may have expired; upload the kubeconfig again."
            raise PermanentError("ClusterRefused", f"{text} {remedy}")
        if not 200 <= status < 300:
            raise QueryFailed(status, _status_message(content) or f"HTTP {status}")
        try:
            document = json.loads(content)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            text = f"{path} did not respond like a Kubernetes API server."
            raise PermanentError("NotKubernetes", f"{text} Correct the server of the kubeconfig.")
        return document

    def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None, timeout_s: float
    ) -> tuple[int, bytes]:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        client = self.access.api_client()
        prepared = client.param_serialize(
            method, path, header_params=dict(_HEADERS), body=body, auth_settings=["BearerToken"]
        )
        try:
            answer = client.call_api(*prepared, _request_timeout=timeout_s)
            return int(answer.status), self._whole(answer.response)
        except ApiException as error:  # raised by the client for a failed TLS handshake
            text = f"The certificate of the API server is not trusted: {_short(error.reason)}."
            remedy = "Put the cluster's certificate-authority-data into the kubeconfig."
            raise PermanentError("ClusterUntrusted", f"{text} {remedy}") from None
        except (HTTPError, OSError) as error:
            text = f"The API server is unreachable: {_short(error)}."
            remedy = "Emberline retries automatically; endpoints keep serving."
            raise TemporaryError("ClusterUnreachable", f"{text} {remedy}") from None

    def _whole(self, reply: Any) -> bytes:
        """Return the body within the budget, even from a server that drips or never ends."""
        content = bytearray()
        try:
            for chunk in reply.stream(_CHUNK):
                content += chunk
                if len(content) > _MOST_BYTES or time.monotonic() > self._until:
                    raise QueryFailed(0, "the response was incomplete")
        except QueryFailed:
            reply.close()  # the rest must not precede the next response
            raise
        reply.release_conn()
        return bytes(content)


def _status_message(content: bytes) -> str:
    try:
        return str(json.loads(content).get("message", ""))[:300]
    except (ValueError, AttributeError):
        return ""


def _short(error: object) -> str:
    """Return the innermost message: connection pools wrap the actual error."""
    inner = getattr(error, "reason", None)
    if isinstance(inner, BaseException):
        return _short(inner)
    return str(error).rpartition(": ")[2].strip(" .'\")(")[:200] or type(error).__name__
