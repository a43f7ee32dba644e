"""Validation of instance types, shared by form and REST; reports all problems at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Any

from console.catalogue.core.builtin import GIB, Instance
from console.core.errors import Problem, Refused

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9._]{0,61}[A-Za-z0-9])?")
MAX_GPUS = 16
MAX_GIB = 65_536


FIELDS = {
    "vcpus": "As reported by the node.",
    "memory_gib": "Per instance.",
    "gpu": "GPU model, such as H100; empty for none.",
    "gpus": "Per instance; 0 for none.",
    "gpu_memory_gib": "As reported by the driver.",
    "price_usd_hour": "On-demand price per instance in USD/h; empty: unknown.",
    "price_date": "First day of this price, such as 2026-11-21; earlier days keep their price.",
    "price_source": "Origin of the price.",
}


def parse_instance(name: Any, data: Mapping[str, Any]) -> Instance:
    remedy = f"Use one of: {', '.join(FIELDS)}."
    problems = [
        Problem(field, None, "Unknown field.", remedy, "unknown_field")
        for field in data
        if field not in FIELDS
    ]
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        remedy = "Use the value of the node label node.kubernetes.io/instance-type."
        problems.append(
            Problem("name", name, "Invalid instance type name.", remedy, "invalid_name")
        )
    found = {
        "vcpus": _number("vcpus", data.get("vcpus"), 1, 4096, problems, whole=True),
        "memory": _number("memory_gib", data.get("memory_gib"), 0.5, MAX_GIB, problems),
        "gpus": _number("gpus", data.get("gpus", 0), 0, MAX_GPUS, problems, whole=True),
        "gpu_memory": _number("gpu_memory_gib", data.get("gpu_memory_gib", 0), 0, 4096, problems),
    }
    price, day = _price(data, problems)
    gpu, source = _text("gpu", data, 40, problems), _text("price_source", data, 200, problems)
    if found["gpus"] and not (found["gpu_memory"] and gpu):
        text = "GPUs require a name and a memory size."
        remedy = "Set gpu, such as H100, and gpu_memory_gib, or set gpus to 0."
        problems.append(Problem("gpu_memory_gib", None, text, remedy, "required"))
    if problems:
        raise Refused(*problems)
    gpus = int(found["gpus"])
    return Instance(
        name=str(name),
        vcpus=int(found["vcpus"]),
        memory_bytes=int(found["memory"] * GIB),
        gpu=gpu if gpus else "",
        gpus=gpus,
        gpu_bytes=int(found["gpu_memory"] * GIB) if gpus else 0,
        price_usd_hour=price,
        price_date=day,
        price_source=source,
    )


def to_data(instance: Instance) -> dict[str, Any]:
    return {
        "vcpus": instance.vcpus,
        "memory_gib": round(instance.memory_bytes / GIB, 3),
        "gpu": instance.gpu,
        "gpus": instance.gpus,
        "gpu_memory_gib": round(instance.gpu_bytes / GIB, 3),
        "price_usd_hour": instance.price_usd_hour,
        "price_date": instance.price_date.isoformat() if instance.price_date else None,
        "price_source": instance.price_source,
    }


def _number(
    field: str,
    value: Any,
    least: float,
    most: float,
    problems: list[Problem],
    *,
    whole: bool = False,
) -> float:
    kind = "a whole number" if whole else "a number"
    fits = isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most
    if fits and not (whole and value != int(value)):
        return float(value)
    text = f"{field} must be {kind} from {least:g} to {most:g}."
    problems.append(Problem(field, value, text, FIELDS[field], "out_of_range"))
    return 0.0


def _text(field: str, data: Mapping[str, Any], longest: int, problems: list[Problem]) -> str:
    value = data.get(field, "")
    if value is None:
        return ""
    if isinstance(value, str) and len(value) <= longest and value.isprintable():
        return value.strip()
    text = f"{field} must be a text of at most {longest} characters."
    problems.append(Problem(field, None, text, FIELDS[field], "type"))
    return ""


def _price(data: Mapping[str, Any], problems: list[Problem]) -> tuple[float | None, date | None]:
    value, day = data.get("price_usd_hour"), data.get("price_date")
    if value is None:
        return None, None
    price = _number("price_usd_hour", value, 0, 100_000, problems)
    try:
        return price, date.fromisoformat(day if isinstance(day, str) else "")
    except ValueError:
        text = "A price requires its first day."
        problems.append(Problem("price_date", day, text, "Write it as 2026-11-21.", "required"))
        return None, None
