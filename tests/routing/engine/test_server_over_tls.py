"""What holds over plain TCP holds over TLS on both sides: the same tests, run again.

Left out: what only plain TCP has (ends by half-close, requests which are not TLS), and what does
not touch a wire.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.routing.engine import harness
from tests.routing.engine.test_exchange import (  # noqa: F401
    test_a_flood_of_pipelined_requests_is_not_collected,
    test_a_flood_whose_answers_are_not_read_is_not_collected,
    test_a_large_body_is_streamed_through_and_complete,
    test_a_plain_answer_and_what_is_added_to_it,
    test_a_refused_upload_still_gets_its_answer,
    test_a_request_split_at_every_byte,
    test_a_stream_is_the_same_bytes,
    test_connection_close_is_honoured,
    test_events_come_as_they_are_made,
    test_every_path_and_method_passes,
    test_expect_continue,
    test_head_requests_and_answers_without_a_body,
    test_http_1_0_gets_no_chunks,
    test_pipelined_requests_are_answered_in_order,
    test_silent_clients_are_sent_away,
)
from tests.routing.engine.test_exchange_failures import (  # noqa: F401
    test_a_client_which_hangs_up_stops_the_worker,
    test_a_client_which_hangs_up_while_connecting_leaves_nothing,
    test_a_client_which_never_reads_is_cut_and_the_worker_stops,
    test_a_failure_before_the_first_byte_goes_elsewhere,
    test_a_kept_connection_closed_by_the_worker_is_not_an_error,
    test_a_short_answer_is_seen_by_the_client,
    test_a_slow_reader_slows_the_worker_down,
    test_a_stream_cut_in_the_middle_is_seen_by_the_client,
    test_a_worker_which_answers_before_the_upload_ends,
    test_a_worker_which_breaks_http_is_not_believed,
    test_a_worker_which_refuses_connections_goes_down_at_once,
    test_an_upload_is_never_sent_twice,
    test_an_upload_to_a_slow_worker_waits,
)
from tests.routing.engine.test_server_changes import (  # noqa: F401
    test_a_stream_survives_every_change,
    test_a_worker_at_a_new_address_is_a_new_worker,
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
    settings = {
        "tls": {"cert": str(cert), "key": str(key)},
        "worker_tls": {"ca": str(ca)},
    }
    monkeypatch.setattr(harness.Wire, "settings", settings)
    monkeypatch.setattr(harness.Wire, "client", authority().client())
    monkeypatch.setattr(FakeWorker, "tls", authority().server("127.0.0.1"))
    monkeypatch.setattr(FaultProxy, "scheme", "https")
