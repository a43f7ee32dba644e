"""JSON requests to an API server for any kind, under one deadline.

A call returns or raises a `ProvisionError` within its deadline, is never retried, and truncates
endless responses. The official client supplies TLS, credentials and their renewal; its typed
models are not used because they drop unknown fields.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError, ReadTimeoutError

from console.core.outbound import ForbiddenAddressError
from console.provisioners.base import PermanentError
from console.provisioners.kubernetes.api import errors, kinds
from console.provisioners.kubernetes.api.errors import ApiRequest
from console.provisioners.kubernetes.api.kinds import ObjectKind

Json = dict[str, Any]

FIELD_MANAGER = "emberline"
_PAGE = 500
_MOST_BYTES = 64 * 2**20
_CHUNK = 64 * 1024
_METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1,application/json"


class Access(Protocol):
    @property
    def deadline_s(self) -> float: ...

    def api_client(self) -> Any: ...


class KubernetesClient:
    def __init__(self, access: Access, namespace: str) -> None:
        self.namespace = namespace
        self._access = access

    @property
    def server(self) -> str:
        return str(self._access.api_client().configuration.host)

    def get(self, kind: ObjectKind, name: str) -> Json | None:
        request = ApiRequest("get", kind, self.namespace, name)
        return self._call("GET", request, absent_ok=True)

    def listed(self, kind: ObjectKind, labels: str = "") -> list[Json]:
        """Return all matching objects; empty if the cluster does not serve the kind."""
        return self._list(kind, labels)[0]

    def metadata(self, kind: ObjectKind, labels: str) -> tuple[list[Json], str]:
        """Return the metadata of all matching objects, and the version to watch from."""
        return self._list(kind, labels, _METADATA.format("List"))

    @contextmanager
    def watch(
        self, kind: ObjectKind, labels: str, version: str, seconds: int, quiet_s: float
    ) -> Iterator[WatchStream]:
        """Open a stream of changes of metadata after `version`, which the server ends after
        `seconds` and this client after `quiet_s` without data.
        """
        query = [("watch", "true"), ("resourceVersion", version), ("labelSelector", labels)]
        query += [("allowWatchBookmarks", "true"), ("timeoutSeconds", str(seconds))]
        request = ApiRequest("watch", kind, self.namespace)
        timeout = (self._access.deadline_s, quiet_s)
        opened = self._open("GET", request, query, accept=_METADATA.format(""), timeout=timeout)
        with opened as reply:
            if reply.status >= 400:
                response = _status(reply.read(_CHUNK))
                raise errors.error_from_status(reply.status, response, request, reply.retry_after_s)
            yield WatchStream(reply, request)

    def _list(self, kind: ObjectKind, labels: str, accept: str = "") -> tuple[list[Json], str]:
        request = ApiRequest("list", kind, self.namespace)
        query = [("limit", str(_PAGE))]
        query += [("labelSelector", labels)] if labels else []
        items: list[Json] = []
        more = ""
        while True:
            page_query = [*query, *([("continue", more)] if more else [])]
            page = self._call("GET", request, page_query, accept=accept, absent_ok=True)
            if page is None:
                return items, ""
            items += page.get("items") or []
            about = page.get("metadata") or {}
            more = about.get("continue") or ""
            if not more:
                return items, str(about.get("resourceVersion") or "")

    def apply(
        self,
        body: Json,
        *,
        force: bool = False,
        manager: str = FIELD_MANAGER,
        kind: ObjectKind | None = None,
    ) -> Json:
        """Apply server-side. `force` takes fields from other managers. `kind` is required for
        objects that are not part of a workload.
        """
        name = str(body["metadata"]["name"])
        request = ApiRequest("patch", kind or kinds.kind_of(body), self.namespace, name)
        query = [("fieldManager", manager), ("force", "true" if force else "false")]
        query.append(("fieldValidation", "Strict"))
        return self._call("PATCH", request, query, body, "application/apply-patch+yaml") or {}

    def merge(self, kind: ObjectKind, name: str, patch: Json, part: str = "") -> Json | None:
        """Merge-patch an object, or its subresource `part`; return None if it does not exist."""
        request = ApiRequest("patch", kind, self.namespace, name, part)
        query = [("fieldManager", FIELD_MANAGER)]
        content = "application/merge-patch+json"
        return self._call("PATCH", request, query, patch, content, absent_ok=True)

    def delete(self, kind: ObjectKind, name: str, uid: str = "") -> None:
        """Delete in the foreground: owned objects first. With `uid`, delete only that instance."""
        request = ApiRequest("delete", kind, self.namespace, name)
        body: Json = {"propagationPolicy": "Foreground"}
        if uid:
            body["preconditions"] = {"uid": uid}
        self._call("DELETE", request, [], body, "application/json", absent_ok=True)

    def log(self, pod: str, query: list[tuple[str, str]]) -> str | None:
        """Return the log, None if the pod or its container has not started or is gone."""
        request = ApiRequest("get", kinds.POD, self.namespace, pod, "log")
        try:
            response = self._send("GET", request, query)
        except HTTPError as error:
            raise errors.unreachable_error(request, str(error)) from error
        if response.status in (400, 404):
            return None
        if response.status >= 400:
            raise errors.error_from_status(
                response.status, _status(response.raw), request, response.retry_after_s
            )
        return response.raw.decode(errors="replace")

    def follow(self, pod: str, query: list[tuple[str, str]], quiet_s: float) -> Iterator[str]:
        """Yield lines without line ends until the server closes or sends nothing for `quiet_s`
        seconds.
        """
        request = ApiRequest("get", kinds.POD, self.namespace, pod, "log")
        with self._open("GET", request, query, timeout=(self._access.deadline_s, quiet_s)) as reply:
            if reply.status >= 400:
                raise errors.error_from_status(reply.status, _status(reply.read(_CHUNK)), request)
            for line in reply.lines(request, _CHUNK):
                yield line.decode(errors="replace")

    def _call(
        self,
        method: str,
        request: ApiRequest,
        query: list[tuple[str, str]] | None = None,
        body: Json | None = None,
        content: str = "",
        *,
        accept: str = "",
        absent_ok: bool = False,
    ) -> Json | None:
        try:
            response = self._send(method, request, query or [], body, content, accept)
        except HTTPError as error:
            raise errors.unreachable_error(request, str(error)) from error
        if response.status == 404 and absent_ok:
            return None
        if response.status >= 400:
            raise errors.error_from_status(
                response.status, _status(response.raw), request, response.retry_after_s
            )
        answer = _parsed(response.raw)
        if answer is None:  # a proxy in between, or a login page
            raise errors.unreachable_error(request, "not a Kubernetes API server")
        return answer

    def _send(
        self,
        method: str,
        request: ApiRequest,
        query: list[tuple[str, str]],
        body: Json | None = None,
        content: str = "",
        accept: str = "",
    ) -> _Answer:
        """Send a request; the deadline covers the whole exchange, even if the server drips."""
        end = time.monotonic() + self._access.deadline_s
        opened = self._open(
            method, request, query, body, content, accept=accept, timeout=self._access.deadline_s
        )
        with opened as reply:
            raw = bytearray()
            for chunk in reply.stream(_CHUNK):
                raw += chunk
                if len(raw) > _MOST_BYTES:
                    raise errors.unreachable_error(
                        request, f"the response exceeds {_MOST_BYTES} bytes"
                    )
                if time.monotonic() > end:
                    raise errors.unreachable_error(request, "the response did not finish in time")
            return _Answer(reply.status, bytes(raw), reply.retry_after_s)

    def _open(
        self,
        method: str,
        request: ApiRequest,
        query: list[tuple[str, str]],
        body: Json | None = None,
        content: str = "",
        *,
        accept: str = "",
        timeout: float | tuple[float, float],
    ) -> closing[Any]:
        """Open the raw reply, to be read within the `with` block."""
        api = self._access.api_client()
        path = request.kind.path(request.namespace, request.name)
        path += f"/{request.part}" if request.part else ""
        headers = {"Accept": accept or "application/json, */*"}
        if content:
            headers["Content-Type"] = content
        parameters = api.param_serialize(
            method, path, None, query, headers, body, auth_settings=["BearerToken"]
        )
        try:
            reply = api.call_api(*parameters, _request_timeout=timeout).response
        except ApiException as error:  # raised by the client for a failed TLS handshake
            raise errors.untrusted_error(request, str(error.reason)) from error
        except HTTPError as error:
            raise errors.unreachable_error(request, _innermost(error)) from error
        except ForbiddenAddressError as error:
            raise PermanentError("AddressForbidden", f"The API server: {error}") from None
        return closing(_Reply(reply))


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    raw: bytes
    retry_after_s: float


class _Reply:
    """A reply whose connection is reused only if it was read completely."""

    def __init__(self, reply: Any) -> None:
        self._reply = reply
        self.status = int(reply.status)
        after = str(reply.headers.get("Retry-After", ""))
        self.retry_after_s = float(after) if after.isdecimal() else 0.0

    def stream(self, size: int) -> Iterator[bytes]:
        """Yield data as it arrives: waiting for `size` bytes could block forever."""
        while chunk := self._reply.read1(size):
            yield chunk
        self._reply.release_conn()

    def lines(self, request: ApiRequest, longest: int) -> Iterator[bytes]:
        """Yield lines without line ends, an overlong one in parts; stop when reading times out."""
        rest = b""
        try:
            for chunk in self.stream(_CHUNK):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from lines
                if len(rest) > longest:
                    yield rest
                    rest = b""
        except ReadTimeoutError:
            return
        except HTTPError as error:
            raise errors.unreachable_error(request, str(error)) from error
        if rest:
            yield rest

    def read(self, size: int) -> bytes:
        return bytes(self._reply.read(size))

    def shutdown(self) -> None:
        """End a read in another thread."""
        self._reply.shutdown()

    def close(self) -> None:
        self._reply.close()


class WatchStream:
    """Events of one watch: type and object. An event of type ERROR is raised."""

    def __init__(self, reply: _Reply, request: ApiRequest) -> None:
        self._reply, self._request = reply, request

    def __iter__(self) -> Iterator[tuple[str, Json]]:
        for line in self._reply.lines(self._request, _MOST_BYTES):
            event = _parsed(line)
            if event is None:
                raise errors.unreachable_error(self._request, "not a watch of a Kubernetes API")
            kind, body = str(event.get("type")), event.get("object") or {}
            if kind == "ERROR":
                raise errors.error_from_status(int(body.get("code") or 500), body, self._request)
            yield kind, body

    def shutdown(self) -> None:
        """End the iteration, called from another thread."""
        self._reply.shutdown()


def _parsed(raw: bytes) -> Json | None:
    try:
        answer = json.loads(raw)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _status(raw: bytes) -> Json:
    return _parsed(raw) or {"message": raw[:200].decode(errors="replace")}


def _innermost(error: BaseException) -> str:
    """Return the innermost message: connection pools wrap the actual error."""
    reason = getattr(error, "reason", None)
    return _innermost(reason) if isinstance(reason, BaseException) else str(error)
