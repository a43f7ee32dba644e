"""HTTP requests to a Prometheus or an Alertmanager with its login.

Redirects are never followed (credentials would go along). Addresses forbidden by
`console.core.outbound` are rejected after connecting, so that DNS rebinding has no effect.
"""

from __future__ import annotations

import ast
import json as jsons
import math
import re
import threading
import time
from collections.abc import Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from console.core.outbound import ForbiddenAddressError, pool_classes
from dashboards.prometheus.http.login import Login, LoginError

_CONNECT_S = 2.0
_MAX_REPLY_BYTES = 8 * 2**20
_PROBE_MEMORY_S = 1.0
# The client's error text for a status other than 200: the code and the body as a bytes repr.
_REFUSAL = re.compile(r"HTTP Status Code (\d+) \((b['\"].*)\)", re.DOTALL)
_MAX_GET_LENGTH = (
    4000  # characters of PromQL in a GET; proxies commonly accept a request line of 8 KiB
)


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def leads_to(self) -> str:
        return self.headers.get("location", "") if 300 <= self.status < 400 else ""


class NoReplyError(Exception):
    """Reason for a missing reply, for users, without secrets."""


def make_session(login: Login) -> requests.Session:
    """Create a session for one thread. Mount a `GuardedAdapter` again after any other mount."""
    made = _Session()
    made.trust_env = False  # environment proxies do not apply to this address
    made.auth = _SigningAuth(login)
    for scheme in ("http://", "https://"):
        made.mount(scheme, GuardedAdapter(login))
    return made


def exchange(
    login: Login,
    method: str,
    url: str,
    *,
    json: Any = None,
    params: Mapping[str, Any] | None = None,
    deadline_s: float = 5.0,
) -> Reply:
    end = time.monotonic() + deadline_s
    limits = (min(_CONNECT_S, deadline_s), deadline_s)
    body = bytearray()
    try:
        with (
            make_session(login) as asking,
            asking.request(
                method, url, json=json, params=params, timeout=limits, stream=True
            ) as answer,
        ):
            for part in answer.iter_content(65536):
                body += part
                if len(body) > _MAX_REPLY_BYTES or time.monotonic() > end:
                    raise NoReplyError("The response is too large or too slow.")
            headers = {name.lower(): value for name, value in answer.headers.items()}
            return Reply(answer.status_code, headers, bytes(body))
    except (ForbiddenAddressError, LoginError) as error:
        raise NoReplyError(str(error)) from None
    except requests.RequestException as error:
        raise NoReplyError(describe_error(error)) from None
    except ValueError:  # raised by urllib3 for invalid host names
        raise NoReplyError("Invalid address.") from None


class LivenessProbe:
    def __init__(self, login: Login, url: str, deadline_s: float) -> None:
        self._login, self._url, self._deadline_s = login, url, deadline_s
        # On its own thread: a socket timeout restarts with each byte of a slow reply.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="prometheus-probe")
        self._lock = threading.Lock()
        self._known = (-math.inf, False)

    def is_alive(self) -> bool:
        """Return the result; concurrent callers share one request."""
        with self._lock:
            checked_at, alive = self._known
            if time.monotonic() - checked_at < _PROBE_MEMORY_S:
                return alive
            future = self._thread.submit(self._ask)
            try:
                alive = future.result(self._deadline_s)
            except (FutureTimeout, CancelledError):
                future.cancel()
                alive = False
            self._known = (time.monotonic(), alive)
            return alive

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _ask(self) -> bool:
        try:
            return exchange(self._login, "GET", self._url, deadline_s=self._deadline_s).status < 500
        except NoReplyError:
            return False


def parse_refusal(text: str) -> tuple[int, str, str]:
    """Parse status, error type and message; the last two are "" unless Prometheus wrote them."""
    match = _REFUSAL.search(text)
    if match is None:
        return 0, "", ""
    try:
        body = jsons.loads(ast.literal_eval(match[2]))
        kind, words = str(body["errorType"]), str(body["error"])
    except (ValueError, SyntaxError, TypeError, KeyError):
        return int(match[1]), "", ""
    return int(match[1]), kind, words if len(words) <= 300 else f"{words[:299]}…"


def describe_error(error: requests.RequestException) -> str:
    if isinstance(error, requests.exceptions.SSLError):
        return f"TLS failed: {_last_cause(error)}."
    if isinstance(error, requests.Timeout):
        return "No response in time."
    if isinstance(error, requests.ConnectionError):
        return "The server is unreachable."
    return f"The query failed ({type(error).__name__})."


def _last_cause(error: BaseException) -> str:
    """Return the innermost text, such as "certificate verify failed: unable to get issuer"."""
    cause: BaseException = error
    while True:
        inner = next((arg for arg in cause.args if isinstance(arg, BaseException)), None)
        inner = inner or getattr(cause, "reason", None)
        if not isinstance(inner, BaseException):
            break
        cause = inner
    reason = getattr(cause, "verify_message", "") or getattr(cause, "reason", "")
    return str(reason or type(cause).__name__).replace("_", " ").lower()


class _Session(requests.Session):
    def request(self, method: Any, url: Any, params: Any = None, **more: Any) -> requests.Response:  # type: ignore[override]
        query = params.get("query", "") if isinstance(params, dict) else ""
        if method == "GET" and len(query) > _MAX_GET_LENGTH:
            return super().request("POST", url, data=params, **more)
        return super().request(method, url, params=params, **more)

    def get_redirect_target(self, _resp: requests.Response) -> str | None:
        return None


class _SigningAuth:
    """Signer of requests. `requests` auth hook that signs each request before it is sent."""

    def __init__(self, login: Login) -> None:
        self._login = login

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        body = request.body
        content = body.encode() if isinstance(body, str) else body
        # AWS signs "+" as a plus sign; send it as %2B.
        path, mark, query = (request.url or "").partition("?")
        request.url = f"{path}{mark}{query.replace('+', '%20')}"
        headers = self._login.headers(
            request.method or "GET", request.url, content if isinstance(content, bytes) else b""
        )
        request.headers.update(headers)
        return request


class GuardedAdapter(HTTPAdapter):
    def __init__(self, login: Login) -> None:
        self._login = login
        super().__init__(max_retries=Retry(total=0, read=False))  # False: raise the original error

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, ssl_context=self._login.tls(), **kwargs)
        self.poolmanager.pool_classes_by_scheme = pool_classes(own=self._login.own)

    def build_connection_pool_key_attributes(
        self, request: requests.PreparedRequest, verify: Any, cert: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Ignore verify and cert: the SSL context holds the CAs and the client certificate."""
        host, _ = super().build_connection_pool_key_attributes(request, verify, cert)
        return host, {}

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """Keep the library from adding its own CA bundle."""
