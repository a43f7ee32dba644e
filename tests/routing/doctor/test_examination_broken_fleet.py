"""Real router with faulty simulated workers: the doctor names each fault and its fix."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from routing.client import admin_client
from routing.doctor.__main__ import main
from routing.doctor.examination import examine
from routing.doctor.findings import DoctorFinding, Examination
from routing.doctor.inspection import NamedWorker
from routing.engine.server import RouterServer
from tests.routing.engine.harness import ask, post, router, until
from tests.routing.engine.tokens import tokenizers_zoo as zoo
from tests.routing.engine.tokens.questions import template
from tests.support.ports import free_port
from tests.support.simulated import SimulatedWorker


def events() -> tuple[str, ...]:
    return ("--kv-events", f"tcp://*:{free_port()}", "--kv-replay", f"tcp://*:{free_port()}")


BREAKS: dict[str, tuple[str, ...]] = {
    "whole": (),
    "quiet": (),
    "forgetful": ("--kv-events", f"tcp://*:{free_port()}"),
    "dialling": ("--kv-events", f"tcp://127.0.0.1:{free_port()}"),
    "coarse": ("--block-size", "128"),
    "short": ("--max-model-len", "512"),
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, SimulatedWorker]]:
    folder = tmp_path_factory.mktemp("fleet")
    own = {"whole", "coarse", "short"}

    def start(name: str) -> SimulatedWorker:
        more = events() if name in own else ()
        return SimulatedWorker(folder, *BREAKS[name], *more)

    with ExitStack() as stack, ThreadPoolExecutor(3) as pool:
        found = dict(zip(BREAKS, pool.map(start, BREAKS), strict=True))
        for worker in found.values():
            stack.callback(worker.close)
        yield found


def listed(fleet: dict[str, SimulatedWorker], *names: str) -> list[dict[str, Any]]:
    return [{"id": name, "url": f"http://127.0.0.1:{fleet[name].port}"} for name in names]


def admin(server: RouterServer) -> str:
    assert server.admin is not None
    return f"http://127.0.0.1:{server.admin.port}"


def model_folder(folder: Path) -> Path:
    """A model's files, of another model than the simulated workers'."""
    settings = zoo.settings() | {"chat_template": template("smollm2")}
    (folder / "tokenizer.json").write_text(zoo.definition("gpt2"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


async def examined(server: RouterServer) -> Examination:
    return await asyncio.to_thread(examine, "demo", [admin(server)])


def by_code(found: Examination) -> dict[str, DoctorFinding]:
    return {finding.code: finding for finding in found.findings}


async def settled(server: RouterServer, *states: str) -> None:
    """Every worker's events are followed, or known not to be."""

    def sources() -> Any:
        listening = server._kvaware.listening
        assert listening is not None
        return sorted(one["state"] for one in listening.subscriber.status()) == sorted(states)

    await until(sources, f"sources are {states}")


async def test_healthy_fleet_has_no_finding(fleet: dict[str, SimulatedWorker]) -> None:
    async with router(strategy="kvaware", workers=listed(fleet, "whole")) as server:
        await settled(server, "following")
        found = await examined(server)
    # Simulated workers have their own tokenizer, which the router does not have.
    assert set(by_code(found)) == {"TokenizerMissing"}, found.findings
    assert found.exit_code == 0
    assert "KvEventsOff" in {one.code for one in found.passed}


async def test_each_broken_worker_is_named_with_its_fix(fleet: dict[str, SimulatedWorker]) -> None:
    async with router(strategy="kvaware", workers=listed(fleet, *BREAKS)) as server:
        await settled(
            server, "following", "following", "following", "following", "connecting", "none"
        )
        found = await examined(server)
    content = by_code(found)
    assert content["KvEventsOff"].workers == ("quiet",)
    assert "--kv-events-config" in content["KvEventsOff"].fix
    assert set(content["KvReplayOff"].workers) == {"forgetful", "dialling"}
    assert content["KvEventsDialOut"].workers == ("dialling",)
    assert "KvEventsNotFollowed" not in content, "it has a better explanation"
    assert content["BlockSizeDiffers"].workers == ("coarse",)
    assert content["ModelDiffers"].workers == ("short",)
    assert set(content) - {"TokenizerMissing", "CachedTokensNotReported"} == {
        "KvEventsOff",
        "KvReplayOff",
        "KvEventsDialOut",
        "BlockSizeDiffers",
        "ModelDiffers",
    }
    assert found.exit_code == 2


async def test_another_tokenizer_than_the_workers_is_found(
    fleet: dict[str, SimulatedWorker], tmp_path: Path
) -> None:
    kv = {"tokenizer": str(model_folder(tmp_path))}
    async with router(strategy="kvaware", workers=listed(fleet, "whole"), kv=kv) as server:
        listening = server._kvaware.listening
        assert listening is not None
        await until(lambda: listening.report, "the comparison")
        found = await examined(server)
    finding = by_code(found)["TokenizerMismatch"]
    assert "Set --tokenizer to the folder of the same model" in finding.fix
    assert "plain text" in finding.evidence[0]


async def test_unnoticed_fallback_is_found(fleet: dict[str, SimulatedWorker]) -> None:
    """The only worker sends no events: requests are placed by prefix, and all are answered."""
    async with router(strategy="kvaware", workers=listed(fleet, "quiet")) as server:
        await settled(server, "none")
        for number in range(20):
            body = {"model": "demo", "prompt": f"{number} words " * 40, "max_tokens": 1}
            assert (await ask(server, post(body, "/v1/completions"))).status == 200
        found = await examined(server)
        seen = await asyncio.to_thread(admin_client.index, admin(server))
        assert seen is not None
        assert seen.recent is not None
        assert (seen.recent.requests, seen.recent.fallbacks) == (20, {"no_events": 20})
    content = by_code(found)["RoutingFallback"]
    assert "no_events: 20 of 20" in content.evidence[0]
    assert "--kv-events-config" in content.fix


async def test_probe_of_the_router_is_parsed(fleet: dict[str, SimulatedWorker]) -> None:
    kv = {"probe_interval_s": 0.1}
    async with router(strategy="kvaware", workers=listed(fleet, "whole"), kv=kv) as server:
        await settled(server, "following")

        async def probed() -> bool:
            seen = await asyncio.to_thread(admin_client.index, admin(server))
            return seen is not None and bool(seen.probes)

        async with asyncio.timeout(60):
            while not await probed():
                await asyncio.sleep(0.05)
        seen = await asyncio.to_thread(admin_client.index, admin(server))
        found = await examined(server)
    assert seen is not None
    assert seen.probes["whole"].hit, seen.probes
    assert seen.probes["whole"].predicted == seen.probes["whole"].reported
    assert seen.tiers["whole"]["gpu"] > 0
    assert "ProbeFailing" in {one.code for one in found.passed}


async def test_worker_unknown_to_the_router(fleet: dict[str, SimulatedWorker]) -> None:
    async with router(strategy="kvaware", workers=listed(fleet, "whole")) as server:
        await settled(server, "following")
        there = [
            NamedWorker("whole", f"http://127.0.0.1:{fleet['whole'].port}"),
            NamedWorker("spare", f"http://127.0.0.1:{fleet['quiet'].port}"),
            NamedWorker("gone", "http://127.0.0.1:9", leaving=True),
        ]
        found = await asyncio.to_thread(examine, "demo", [admin(server)], there)
    assert by_code(found)["WorkerNotRegistered"].workers == ("spare",)


async def test_without_a_console(
    fleet: dict[str, SimulatedWorker], capsys: pytest.CaptureFixture[str]
) -> None:
    """`python -m routing.doctor`: text, JSON and the verdict as an exit code."""
    async with router(strategy="kvaware", workers=listed(fleet, "whole", "quiet")) as server:
        await settled(server, "following", "none")
        assert await asyncio.to_thread(main, ["--admin", admin(server)]) == 2
        shown = capsys.readouterr().out
        assert "✗ error KvEventsOff" in shown
        assert "    quiet: /kv_event_sources lists 0 sources" in shown
        assert "  → Start them with --kv-events-config" in shown
        assert await asyncio.to_thread(main, ["--admin", admin(server), "-o", "json"]) == 2
        data = json.loads(capsys.readouterr().out)
    assert data["verdict"] == "error"
    assert data["findings"][0]["workers"] == ["quiet"]
    assert await asyncio.to_thread(main, ["--admin", "http://127.0.0.1:9"]) == 2
    assert "RouterSilent" in capsys.readouterr().out
