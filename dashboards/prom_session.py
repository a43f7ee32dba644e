"""HTTP to a Prometheus or an Alertmanager, as its login says.

Promises that a redirect is never followed (what we are let in with would go along), that no proxy
of the environment is asked, and that nothing is sent to an address `console.outbound` forbids: it
is looked at after connecting, so a name cannot lead elsewhere a moment later. Must not know Django.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from socket import socket
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.util.retry import Retry

from console.outbound import ForbiddenAddressError, why_forbidden
from dashboards.login import Login, LoginError

_CONNECT_S = 2.0
_MOST_BYTES = 8 * 2**20
_LONGEST = 4000  # characters of PromQL; proxies commonly take a first line of 8 KiB


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def leads_to(self) -> str:
        """Where a redirect would have led."""
        return self.headers.get("location", "") if 300 <= self.status < 400 else ""


class NoReplyError(Exception):
    """A sentence for people: why there is no answer. It holds no secret."""


def session(login: Login) -> requests.Session:
    """For one thread. Mount `guarded(login)` on it again after anybody mounted something else."""
    made = _Session()
    made.trust_env = False  # a proxy meant for the internet is not for this address
    made.auth = _Signed(login)
    for scheme in ("http://", "https://"):
        made.mount(scheme, guarded(login))
    return made


def guarded(login: Login) -> HTTPAdapter:
    return _Adapter(login)


def exchange(
    login: Login,
    method: str,
    url: str,
    *,
    json: Any = None,
    params: Mapping[str, Any] | None = None,
    deadline_s: float = 5.0,
) -> Reply:
    """One question and its whole answer, or `NoReplyError`."""
    end = time.monotonic() + deadline_s
    limits = (min(_CONNECT_S, deadline_s), deadline_s)
    body = bytearray()
    try:
        with (
            session(login) as asking,
            asking.request(
                method, url, json=json, params=params, timeout=limits, stream=True
            ) as answer,
        ):
            for part in answer.iter_content(65536):
                body += part
                if len(body) > _MOST_BYTES or time.monotonic() > end:
                    raise NoReplyError("Its answer is too long, or comes too slowly.")
            headers = {name.lower(): value for name, value in answer.headers.items()}
            return Reply(answer.status_code, headers, bytes(body))
    except (ForbiddenAddressError, LoginError) as error:
        raise NoReplyError(str(error)) from None
    except requests.RequestException as error:
        raise NoReplyError(why(error)) from None
    except ValueError:  # urllib3's own for hosts no resolver takes
        raise NoReplyError("That is no address.") from None


def why(error: requests.RequestException) -> str:
    """What went wrong on the wire, in words."""
    if isinstance(error, requests.exceptions.SSLError):
        return f"TLS failed: {_last_cause(error)}."
    if isinstance(error, requests.Timeout):
        return "It did not answer in time."
    if isinstance(error, requests.ConnectionError):
        return "It cannot be reached."
    return f"It cannot be asked ({type(error).__name__})."


def _last_cause(error: BaseException) -> str:
    """OpenSSL's own words, such as "certificate verify failed: unable to get issuer"."""
    found: BaseException = error
    while True:
        inner = next((one for one in found.args if isinstance(one, BaseException)), None)
        inner = inner or getattr(found, "reason", None)
        if not isinstance(inner, BaseException):
            break
        found = inner
    said = getattr(found, "verify_message", "") or getattr(found, "reason", "")
    return str(said or type(found).__name__).replace("_", " ").lower()


class _Session(requests.Session):
    def request(self, method: Any, url: Any, params: Any = None, **more: Any) -> requests.Response:  # type: ignore[override]
        """A question too long for the first line of a request is sent as a form."""
        query = params.get("query", "") if isinstance(params, dict) else ""
        if method == "GET" and len(query) > _LONGEST:
            return super().request("POST", url, data=params, **more)
        return super().request(method, url, params=params, **more)

    def get_redirect_target(self, _resp: requests.Response) -> str | None:
        return None


class _Signed:
    """What `requests` takes as a way to log in: called with each request before it is sent."""

    def __init__(self, login: Login) -> None:
        self._login = login

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        body = request.body
        content = body.encode() if isinstance(body, str) else body
        # AWS reads a plus as a plus; a real one is written %2B here.
        path, mark, query = (request.url or "").partition("?")
        request.url = f"{path}{mark}{query.replace('+', '%20')}"
        told = self._login.headers(
            request.method or "GET", request.url, content if isinstance(content, bytes) else b""
        )
        request.headers.update(told)
        return request


class _Adapter(HTTPAdapter):
    def __init__(self, login: Login) -> None:
        self._login = login
        super().__init__(max_retries=Retry(total=0))

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, ssl_context=self._login.tls(), **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _Plain, "https": _Secure}

    def build_connection_pool_key_attributes(
        self, request: requests.PreparedRequest, verify: Any, cert: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Whom to trust and what to show is in the context already."""
        host, _ = super().build_connection_pool_key_attributes(request, verify, cert)
        return host, {}

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """As above: the library's own bundle of authorities is not to be added."""


class _PlainConnection(HTTPConnection):
    def _new_conn(self) -> socket:
        return _looked_at(super()._new_conn())


class _SecureConnection(HTTPSConnection):
    def _new_conn(self) -> socket:
        return _looked_at(super()._new_conn())


def _looked_at(made: socket) -> socket:
    """Whom a new connection has reached, before a byte is sent."""
    reason = why_forbidden(str(made.getpeername()[0]))
    if reason:
        made.close()
        raise ForbiddenAddressError(reason)
    return made


class _Plain(HTTPConnectionPool):
    ConnectionCls = _PlainConnection


class _Secure(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection
