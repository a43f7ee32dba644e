"""Tests of plain TCP repeated over TLS on both sides.

Omitted: features of plain TCP (half-close, requests that are not TLS), and tests without a
connection.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.routing.engine import harness
from tests.routing.engine.test_exchange import (  # noqa: F401
    test_a_request_split_at_every_byte,
    test_connection_close_is_honoured,
    test_events_are_forwarded_immediately,
    test_every_path_and_method_is_forwarded,
    test_expect_continue,
    test_flood_of_pipelined_requests_is_not_buffered,
    test_flood_with_unread_responses_is_not_buffered,
    test_head_requests_and_responses_without_a_body,
    test_http_1_0_gets_no_chunks,
    test_large_body_is_streamed_completely,
    test_pipelined_requests_are_answered_in_order,
    test_rejected_upload_gets_its_response,
    test_response_is_forwarded_with_added_headers,
    test_silent_clients_are_disconnected,
    test_stream_is_forwarded_byte_for_byte,
)
from tests.routing.engine.test_exchange_failures import (  # noqa: F401
    test_client_disconnect_stops_the_worker,
    test_client_disconnect_while_connecting_leaves_nothing,
    test_client_that_never_reads_is_disconnected_and_the_worker_stops,
    test_failure_before_the_first_byte_is_retried_elsewhere,
    test_kept_connection_closed_by_the_worker_is_no_error,
    test_slow_reader_slows_the_worker,
    test_truncated_response_is_visible_to_the_client,
    test_truncated_stream_is_visible_to_the_client,
    test_upload_to_a_slow_worker_is_paused,
    test_uploads_are_never_sent_twice,
    test_worker_that_refuses_connections_is_down_at_once,
    test_worker_that_responds_before_the_upload_ends,
    test_worker_that_violates_http_is_rejected,
)
from tests.routing.engine.test_server_changes import (  # noqa: F401
    test_stream_survives_every_change,
    test_worker_at_a_new_address_is_a_new_worker,
)
from tests.support.certificates import authority
from tests.support.fake_worker import FakeWorker
from tests.support.faultproxy import FaultProxy


@pytest.fixture(autouse=True)
def _tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "tls"
    folder.mkdir()
    cert, key = authority().write(folder, "localhost", "127.0.0.1")
    ca = authority().write_ca(folder / "ca.pem")
    settings = {"tls": {"cert": str(cert), "key": str(key)}, "worker_tls": {"ca": str(ca)}}
    monkeypatch.setattr(harness.Wire, "settings", settings)
    monkeypatch.setattr(harness.Wire, "client", authority().client())
    monkeypatch.setattr(FakeWorker, "tls", authority().server("127.0.0.1"))
    monkeypatch.setattr(FaultProxy, "scheme", "https")
