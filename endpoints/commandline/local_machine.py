"""Preflight checks, console keys and demo data on the console's own machine."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from console.audit import chain, integrity
from console.audit.record import record
from console.commandline.context import FAILED, USAGE, CommandError
from console.system import preflight
from console.vault import key_rotation
from endpoints import actions
from endpoints.actions import SYSTEM
from endpoints.keys import actions as key_actions
from endpoints.keys import storage
from endpoints.models import Endpoint
from endpoints.placement import installation
from endpoints.spec.endpoint_spec import GIB

NAME = "demo"
REPLICAS = 2
L1_GIB = 0.5
LEAST_L1_GIB = 0.06
# A worker of the demo model needs 2.4 GiB; simulated workers need almost nothing.
MEMORY_GIB = {"vllm": 3.0, "simulated": 0.25}


def seed_demo() -> str:
    """Create the demo endpoint unless it exists, and return a report."""
    exists = Endpoint.objects.filter(name=NAME).exists()
    if not exists:
        actions.create(SYSTEM, spec())
    _keep_quickstart_key()
    return f"Endpoint {NAME} already exists." if exists else f"Endpoint {NAME} created."


def _keep_quickstart_key() -> None:
    """Put a key for callers into a file, unless there is one or somebody revoked it."""
    demo = Endpoint.objects.get(name=NAME)
    path = storage.quickstart_file(NAME)
    if path.is_file() or demo.deleting:
        return
    keys = demo.keys.filter(name=storage.QUICKSTART)
    if not keys:
        made = key_actions.create(SYSTEM, NAME, {"name": storage.QUICKSTART})
    elif lost := keys.filter(revoked_at=None).first():
        made = key_actions.rotate(SYSTEM, str(lost.pk))
    else:
        return
    storage.write_key_file(path, made.clear)


def spec() -> dict[str, Any]:
    engine = settings.EMBERLINE.workers
    l1_gib = _l1_gib(engine)
    return {
        "name": NAME,
        "model": installation.DEMO_MODEL,
        "engine": engine,
        "replicas": REPLICAS,
        "cache": {
            "l1": {"enabled": l1_gib > 0, "size_gib": l1_gib or L1_GIB},
            "l2": {"enabled": l1_gib > 0, "backend": "tieredstorage"},
        },
        "routing": {"enabled": True, "strategy": "prefixaware"},
        "worker_args": ["--max-model-len=2048"],
        "resources": {"cpus": 1.0, "memory_gib": MEMORY_GIB[engine]},
    }


def _l1_gib(engine: str) -> float:
    """Return 0.5, less where /dev/shm is small (64 MiB in many containers), or 0."""
    if engine == "simulated":
        return L1_GIB
    offered = 0.8 * installation.shared_memory_bytes() / GIB / REPLICAS
    fitting = round(min(L1_GIB, offered), 2)
    return fitting if fitting >= LEAST_L1_GIB else 0.0


class ThisMachine:
    def seed_demo(self) -> str:
        return seed_demo()

    def doctor(self) -> tuple[str, bool]:
        report = preflight.ask()
        well = not any(verdict.needed and not verdict.ok for verdict in report)
        return "\n".join(str(verdict) for verdict in report), well

    def rekey(self) -> str:
        counts = key_rotation.rekey(record)
        text = f"Re-encrypted: {', '.join(counts.done)}." if counts.done else ""
        if counts.unreadable:
            lost = f"No configured key decrypts the secrets of {', '.join(counts.unreadable)}."
            remedy = "Add the earlier key after the current one, or enter these secrets again."
            raise CommandError(" ".join(part for part in (text, lost, remedy) if part), FAILED)
        return text or "All secrets are encrypted with the first key."

    def audit(self, verb: str, argument: str) -> str:
        if verb == "reseal":
            return integrity.reseal()
        if verb == "prune":
            try:
                return integrity.prune(argument)
            except ValueError:
                text = f"--before {argument!r} is not a date. Enter a date such as 2026-01-31."
                raise CommandError(text, USAGE) from None
            except chain.BrokenChainError as error:
                text = f"Nothing was deleted: the log was changed outside the console: {error}."
                raise CommandError(f"{text} Run emberline audit verify.", FAILED) from None
        text, intact = integrity.verify()
        differs = integrity.compare(argument) if intact and argument else ""
        if not intact or differs:
            raise CommandError(differs or text, FAILED)
        return text
