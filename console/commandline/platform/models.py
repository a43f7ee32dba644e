"""`emberline model list | check`: the model catalogue, and the check of one name."""

from __future__ import annotations

from typing import Any

from console.commandline import output
from console.commandline.verbs import Table, Verbs
from console.core.disk import format_bytes


def _model(one: dict[str, Any]) -> tuple[str, ...]:
    is_known = bool(one["params"])
    return (
        one["name"],
        _params(one["params"]),
        format_bytes(one["weight_bytes"]) if is_known else "-",
        str(one["max_context"]) if is_known else "-",
        one["license"] or "-",
        "yes" if one["gated"] else "no",
        _placement(one["here"]),
        _placement(one["instance"]),
    )


def _params(params: int) -> str:
    if not params:
        return "-"
    return f"{params / 1e9:.2f}B" if params >= 1e9 else f"{params / 1e6:.0f}M"


def _placement(one: dict[str, Any] | None) -> str:
    if one is None:
        return "-"
    if one["verdict"] == "does_not_fit":
        return "no"
    where = f"{one['machine']} ({one['gpus']} x {one['gpu']})" if one["gpus"] else "yes"
    return f"{where}, up to {one['max_context']} tokens" if one["verdict"] == "tight" else where


_HEAD = ("NAME", "PARAMS", "WEIGHTS", "CONTEXT", "LICENCE", "GATED", "FITS HERE", "SMALLEST TYPE")
_MODELS = Table(_HEAD, _model, "No known model matches.")
_HUB = {
    "found": "Found on Hugging Face.",
    "missing": "Not found on Hugging Face. Correct the name.",
    "private": "Not found on Hugging Face, or private. Correct the name, or give workers a token.",
}


def _checked(one: dict[str, Any]) -> str:
    table = output.table(_HEAD, [_model(one)])
    hub = one["hub"]
    if hub is None:
        return table
    answer = _HUB.get(hub["status"], f"Not checked on Hugging Face: {hub['reason']}.")
    return f"{table}\n{answer}"


def add_models(rooms: Verbs) -> None:
    verbs = rooms.group("model", "known models and what they fit on")
    verb = verbs.verb("list", "models of known size", call="GET models/", show=_MODELS)
    verb.add("--search", default=None, help="words of the name, licence or size")
    verb.add("--cluster", default=None, help="compare with the node pools of this cluster")
    text = "size of a model, and whether Hugging Face has it"
    verb = verbs.verb("check", text, call="POST models/check/", show=_checked)
    verb.add("name", help="a known model, organisation/name or a path")
    verb.add("--cluster", default="", help="compare with the node pools of this cluster")
