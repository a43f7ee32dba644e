"""Client with one attribute per resource of the REST API."""

from __future__ import annotations

import ssl
from types import TracebackType
from typing import Any, cast
from urllib.parse import urlsplit

import httpx

from console.client import documents, endpoints, resources
from console.client.errors import Unreachable
from console.client.http import PREFIX, Http

CONNECT_TIMEOUT_S = 5.0
RESPONSE_TIMEOUT_S = 60.0
"""For one response; the slowest is a preview of a large manifest on a cluster."""


class Client:
    """Client of one console. Close it, or use it as a context manager.

    `transport` replaces the network; `live` states that it delivers streams while they are written.
    `ca_file` is a CA bundle for a certificate that the system does not trust.
    """

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        ca_file: str = "",
        transport: httpx.BaseTransport | None = None,
        live: bool = True,
    ) -> None:
        self.url = base_url(url)
        headers = {"User-Agent": "emberline-client"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._httpx = httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=httpx.Timeout(RESPONSE_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            transport=transport,
            verify=_ssl_context(ca_file),
        )
        self.http = Http(self._httpx, live)
        self.endpoints = endpoints.Endpoints(self.http)
        self.benchmarks = endpoints.Benchmarks(self.http)
        self.canaries = endpoints.Canaries(self.http)
        self.whatifs = endpoints.WhatIfs(self.http)
        self.advice = endpoints.AdviceClient(self.http)
        self.clusters = resources.Clusters(self.http)
        self.cache_tiers = resources.CacheTiers(self.http)
        self.instance_types = resources.InstanceTypes(self.http)
        self.models = resources.Models(self.http)
        self.metrics_sources = resources.MetricsSources(self.http)
        self.follows = resources.Follows(self.http)
        self.alerts = resources.Alerts(self.http)
        self.alert_routes = resources.AlertRoutes(self.http)
        self.grafana = resources.Grafana(self.http)
        self.users = resources.UserClient(self.http)
        self.teams = resources.Teams(self.http)
        self.tokens = resources.TokenClient(self.http)
        self.audit = resources.Audit(self.http)
        self.budgets = resources.Budgets(self.http)
        self.custom_boards = resources.CustomBoards(self.http)
        self.cost_reports = resources.Reports(self.http)
        self.tier_prices = resources.TierPrices(self.http)
        self.prices = resources.Prices(self.http)
        self.calibrations = resources.Calibrations(self.http)
        self.silences = resources.Silences(self.http)
        self.receivers = resources.Receivers(self.http)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._httpx.close()

    def me(self) -> documents.Me:
        return cast(documents.Me, self.http.get("me/"))

    def board(self, board: str, panel: str, endpoint: str = "") -> dict[str, Any]:
        """Return the latest 15 minutes of a panel, for all endpoints or for one."""
        params = {"panel": panel, "endpoint": endpoint, "range": "15m"}
        return cast(dict[str, Any], self.http.get(f"boards/{board}/", params))

    def costs(self, range_: str = "") -> documents.Costs:
        return cast(documents.Costs, self.http.get("costs/", {"range": range_}))

    def misses(self, **query: str) -> dict[str, Any]:
        """Return the computed prompt tokens of all endpoints by group and cause."""
        return cast(dict[str, Any], self.http.get("misses/", query))


def base_url(url: str) -> str:
    """Return the console's base URL without an API path; raise `Unreachable` if invalid."""
    try:
        parts = urlsplit(url.strip())
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query
        _ = parts.port
    except ValueError:
        good = False
    if not good or parts.username is not None:
        raise Unreachable(
            f"{url!r} is not a valid address. Write https://HOST or http://HOST:PORT."
        )
    return url.strip().rstrip("/").removesuffix(PREFIX.rstrip("/"))


def _ssl_context(ca_file: str) -> ssl.SSLContext | bool:
    if not ca_file:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise Unreachable(f"{ca_file} contains no readable certificate: {error}.") from None
