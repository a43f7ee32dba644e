"""Bounded HTTP request to a process of this installation.

Ends soon after the deadline, even if the server drips; holds at most `max_bytes` in memory;
ignores the environment's proxies.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import httpx


class TooLargeError(httpx.RequestError): ...


def fetch(
    method: str,
    url: str,
    *,
    deadline_s: float,
    max_bytes: int,
    json: Any = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    """Return status and body; raise `httpx.HTTPError` or `httpx.InvalidURL`."""
    end = time.monotonic() + deadline_s
    body = bytearray()
    try:
        with (
            httpx.Client(timeout=deadline_s, trust_env=False, verify=system_tls()) as client,
            client.stream(method, url, json=json, headers=headers) as answer,
        ):
            for part in answer.iter_bytes():
                body += part
                if len(body) > max_bytes:
                    raise TooLargeError(f"the response of {url} exceeds {max_bytes} bytes")
                if time.monotonic() > end:
                    raise httpx.ReadTimeout(
                        f"{url} did not respond completely within {deadline_s:g} s"
                    )
            return answer.status_code, bytes(body)
    except UnicodeError as error:  # raised by httpx for an invalid host name
        raise httpx.InvalidURL(f"{url} has no host") from error


@lru_cache(maxsize=1)
def system_tls() -> ssl.SSLContext:
    """Return the shared context with the system's CAs, for callers that do not change it.

    Cached: loading the CAs takes longer than most requests.
    """
    return ssl.create_default_context()
