"""Doctor with real vLLM: no finding without faults, and each fault by name.

One correct worker, and one with every silent fault: no events, other blocks, other hashes, another
chat template, another length.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from routing.doctor.examination import examine
from routing.doctor.findings import DoctorFinding, Examination
from tests.support.vllm.fixtures import Pair
from tests.support.vllm.router_process import Router, Seat
from tests.support.vllm.worker import Worker

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

_TEMPLATE = (
    "{% for message in messages %}[{{ message['role'] }}] {{ message['content'] }}\n"
    "{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}"
)


class Unsettled(Router):
    """Ready as soon as its workers are up and its tokens are compared, whatever came of it."""

    def follows_all(self) -> bool:
        kv = self.ask("/index")["kv"]
        value = all(source.get("reason") != "undiscovered" for source in kv["sources"])
        return value and kv["telling"] and kv["tokenizer"]["compared"] is not None


@pytest.fixture(scope="module")
def workers(
    vllm_pair: Pair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Worker, Worker]]:
    folder = tmp_path_factory.mktemp("doctor")
    template = folder / "other.jinja"
    template.write_text(_TEMPLATE)
    wrong = (
        *("--block-size=64", "--prefix-caching-hash-algo=sha256_cbor", "--max-model-len=512"),
        f"--chat-template={template}",
    )
    bad = Worker(folder, "bad", None, {}, *wrong)
    try:
        bad.wait_ready()
        yield vllm_pair.a, bad
    finally:
        bad.kill()


def examined(router: Router) -> Examination:
    try:
        router.start()
        return examine("", [f"http://127.0.0.1:{router.admin}"])
    finally:
        router.stop()


def by_code(found: Examination) -> dict[str, DoctorFinding]:
    return {finding.code: finding for finding in found.findings}


def test_healthy_endpoint_has_no_finding(workers: tuple[Worker, Worker], tmp_path: Path) -> None:
    found = examined(Router(tmp_path, [Seat("good", workers[0])]))
    assert found.findings == ()
    assert found.exit_code == 0
    made = {outcome.code for outcome in found.passed}
    assert {"KvEventsOff", "KvReplayOff", "PrefixCachingOff", "TemplateMismatch"} <= made
    compared = {outcome.code for outcome in found.skipped} - {"ProbeFailing"}
    assert all("two workers" in o.why for o in found.skipped if o.code in compared)


def test_worker_with_every_fault(workers: tuple[Worker, Worker], tmp_path: Path) -> None:
    good, bad = workers
    third = Seat("same", good)  # the same engine again, so that two of three agree
    found = examined(Unsettled(tmp_path, [Seat("good", good), Seat("bad", bad), third]))
    content = by_code(found)
    assert content["KvEventsOff"].workers == ("bad",)
    for code in ("BlockSizeDiffers", "HashAlgorithmDiffers", "ModelDiffers", "TemplateDiffers"):
        assert content[code].workers == ("bad",), content.get(code)
    assert "--block-size 64: bad" in content["BlockSizeDiffers"].evidence
    assert "--chat-template" in content["TemplateDiffers"].fix
    assert "TokenizerDiffers" not in content, "texts are cut alike"
    assert set(content["KvEventSourceShared"].workers) == {"good", "same"}
    assert found.exit_code == 2


def test_router_with_another_template(workers: tuple[Worker, Worker], tmp_path: Path) -> None:
    template = tmp_path / "router.jinja"
    template.write_text(_TEMPLATE)
    router = Unsettled(tmp_path, [Seat("good", workers[0])], kv={"chat_template": str(template)})
    content = by_code(examined(router))
    assert set(content) == {"TemplateMismatch"}
    assert "the worker's chat template" in content["TemplateMismatch"].fix
