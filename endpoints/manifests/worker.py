"""Convert the `worker` block to endpoint fields: image, arguments, variables, resources, probes.

Values without a field are kept in their Kubernetes form. Arguments are dropped only if they equal
what Emberline sets anyway.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from endpoints.spec.validators import flag_of

GIB = 1024**3
_FORM = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))([eE][+-]?[0-9]+|[numkMGTPE]i?|)")
_SCALES = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    **{letter: 1000.0 ** (power + 1) for power, letter in enumerate("kMGTPE")},
    **{f"{letter}i": 1024.0 ** (power + 1) for power, letter in enumerate("KMGTPE")},
}


def parse_quantity(value: Any) -> float | None:
    """Parse a Kubernetes quantity; None if invalid."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    text = str(value).replace("Ki", "ki")
    match = _FORM.fullmatch(text)
    if match is None:
        return None
    digits, suffix = match.groups()
    if suffix[:1] in "eE" and len(suffix) > 1 and suffix[1] != "i":
        return float(digits + suffix)
    scale = _SCALES.get(suffix.replace("ki", "Ki"))
    return None if scale is None else float(digits) * scale


def gib(value: Any) -> float | None:
    quantity = parse_quantity(value)
    return None if quantity is None else round(quantity / GIB, 3)


def cpu_text(cpus: float) -> str:
    return f"{cpus:g}" if cpus == int(cpus) else f"{round(cpus * 1000)}m"


def memory_text(size_gib: float) -> str:
    return f"{size_gib:g}Gi" if size_gib == int(size_gib) else f"{round(size_gib * 1024)}Mi"


GPU = "nvidia.com/gpu"
MOUNT = "/opt/ml/model"
LMCACHE_L1_GIB = 5.0
"""LMCache's default L1 size."""
_L1_VARIABLE = "LMCACHE_MAX_LOCAL_CPU_SIZE"
_API_SERVER = "vllm.entrypoints.openai.api_server"
_VLLM_COMMANDS = (("vllm", "serve"), ("python3", "-m", _API_SERVER), ("python", "-m", _API_SERVER))
_SHELLS = ("sh", "bash")
_OWN_BLOCK_SIZE = "32"  # of the default chunk size (workload.worker_spec)
_CACHE_CONNECTORS = ("LMCacheConnectorV1", "LMCacheConnector", "OffloadingConnector")
_VLLM_IMAGE = re.compile(r"(^|[/_-])(vllm|emberline-worker)([/:_@-]|$)")
_SWITCHES = frozenset(
    {"--enable-prefix-caching", "--enable-prompt-tokens-details", "--enable-scale-out"}
)
Flat = dict[str, Any]


def serves_vllm(worker: Mapping[str, Any], own_image: str) -> bool:
    """Return whether the server is vLLM, the only one with KV cache and KV events.

    `own_image`: the installation's worker image, of which any version is vLLM; "" without one.
    """
    command, _ = split_command(worker)
    image = worker["image"]
    is_own = bool(own_image) and _repository(image) == _repository(own_image)
    return (
        is_own
        or bool(_VLLM_IMAGE.search(image))
        or any(command[: len(start)] == start for start in _VLLM_COMMANDS)
    )


def _repository(image: str) -> str:
    """An image without digest and tag; a port of the registry stays."""
    name = image.partition("@")[0]
    host, slash, last = name.rpartition("/")
    return f"{host}{slash}{last.partition(':')[0]}"


def fields(worker: Mapping[str, Any], model: str, names: Sequence[str]) -> Flat:
    """`names`: under which arguments may repeat the model."""
    mount = worker["modelVolumeMount"].get("mountPath", MOUNT)
    port = worker["modelInvocationPort"]["containerPort"]
    variables = worker.get("environmentVariables") or []
    command, words = split_command(worker)
    arguments = read_arguments(words, mount, port, names)
    return {
        "pod.image": worker["image"],
        "pod.command": [] if command in _VLLM_COMMANDS else list(command),
        "pod.working_dir": worker.get("workingDir", ""),
        "pod.port": port,
        "pod.env": {v["name"]: v.get("value", "") for v in variables if "valueFrom" not in v},
        "pod.env_from": [dict(v) for v in variables if "valueFrom" in v],
        "pod.probes": {
            name.removesuffix("Probe"): probe
            for name, probe in (worker.get("probes") or {}).items()
        },
        "source.mount_path": mount,
        "worker_args": arguments.kept,
        "aliases": [name for name in arguments.served if name != model],
        **limits(worker.get("requestLimits")),
    }


def limits(given: Mapping[str, Any] | None) -> Flat:
    if not given:
        return {}
    return {
        "limits.max_concurrent": given.get("maxConcurrentRequests", 0),
        "limits.max_queue": given.get("maxQueueSize", -1),
        "limits.overflow_status": given.get("overflowStatusCode", 429),
    }


def split_command(worker: Mapping[str, Any]) -> tuple[tuple[str, ...], list[str]]:
    """Return the server's command and its arguments, wherever the manifest puts the first words.

    `args` may begin with `-m MODULE`, `vllm serve` or `serve`, or be one line for a shell.
    """
    command = tuple(worker.get("command") or ())
    arguments = list(worker.get("args") or [])
    shell_words = [*command[2:], *arguments]
    if command[:1] and PurePath(command[0]).name in _SHELLS and command[1:2] in (("-c",), ("-lc",)):
        line = _shell_words(shell_words)
        if line is not None:
            command, arguments = (), line
    whole = [*command, *arguments]
    for start in _VLLM_COMMANDS:
        if tuple(whole[: len(start)]) == start:
            return start, _with_model_flag(whole[len(start) :])
    if arguments[:2] == ["-m", _API_SERVER]:
        return ("python3", "-m", _API_SERVER), arguments[2:]
    if arguments[:1] == ["serve"]:
        return ("vllm", "serve"), _with_model_flag(arguments[1:])
    return command, arguments


def _with_model_flag(words: list[str]) -> list[str]:
    """Return the words behind `vllm serve` with their first one, the model, as a flag."""
    return ["--model", *words] if words and not flag_of(words[0]) else words


def _shell_words(words: list[str]) -> list[str] | None:
    """Return the words of one shell line that only starts vLLM; None for anything else."""
    if len(words) != 1:
        return None
    try:
        line = shlex.split(words[0].replace("\\\n", " "))
    except ValueError:
        return None
    line = line[1:] if line[:1] == ["exec"] else line
    starts = any(tuple(line[: len(start)]) == start for start in _VLLM_COMMANDS)
    plain = not any(mark in words[0] for mark in ("$", ";", "&", "|", ">", "<", "`"))
    return line if starts and plain else None


@dataclass(frozen=True, slots=True)
class WorkerArguments:
    """A manifest's arguments by use.

    `kept` as worker arguments; `dropped` flags, whose values other fields set; and the `served`
    model names.
    """

    kept: list[str]
    dropped: tuple[str, ...]
    served: tuple[str, ...]


def read_arguments(
    words: Sequence[str], mount: str, port: int, names: Sequence[str]
) -> WorkerArguments:
    items = list(words)
    dropped: list[str] = []
    served: list[str] = []
    if items and not flag_of(items[0]) and _is_model(items[0], mount, names):
        dropped.append(items.pop(0))  # the image's own command is `vllm serve`
    remaining: list[str] = []
    while items:
        item = items.pop(0)
        flag = flag_of(item)
        if flag in _SWITCHES and "=" not in item:
            dropped.append(flag)
            continue
        if flag == "--served-model-name":
            served += [item.partition("=")[2]] if "=" in item else []
            while items and not flag_of(items[0]):
                served.append(items.pop(0))
            dropped.append(flag)
            continue
        value = _value(item, items)
        if _repeats(flag, value, mount, port, names):
            if "=" not in item:
                del items[0]
            dropped.append(flag)
            continue
        remaining.append(item)
    return WorkerArguments(remaining, tuple(dict.fromkeys(dropped)), tuple(dict.fromkeys(served)))


def _value(item: str, following: list[str]) -> str:
    if "=" in item:
        return item.partition("=")[2]
    return following[0] if following and not flag_of(following[0]) else ""


def _repeats(flag: str, value: str, mount: str, port: int, names: Sequence[str]) -> bool:
    if not value:
        return False
    return (
        (flag == "--model" and _is_model(value, mount, names))
        or (flag == "--port" and value == str(port))
        or (flag == "--host" and value in ("0.0.0.0", "::"))
        or (flag == "--block-size" and value == _OWN_BLOCK_SIZE)
        or (flag == "--kv-transfer-config" and _is_cache_connector(value))
    )


def _is_model(text: str, mount: str, names: Sequence[str]) -> bool:
    return text.rstrip("/") == mount.rstrip("/") or text in names


def _is_cache_connector(text: str) -> bool:
    """Return True for a connector to a KV cache, which the cache fields configure."""
    try:
        config = json.loads(text)
    except ValueError:
        return False
    return (
        isinstance(config, dict)
        and config.get("kv_connector") in _CACHE_CONNECTORS
        and config.get("kv_role", "kv_both") == "kv_both"
    )


def sizes(worker: Mapping[str, Any], l1: float | None, l1_enabled: bool) -> Flat:
    """Return CPU, memory, GPU and L1 fields of a worker. A manifest's memory includes L1, ours does
    not. Other resources override the rendered ones. `l1` is the explicit L1 size (GiB), None if
    unset.
    """
    resources = worker["resources"]
    requests, limit = resources.get("requests") or {}, resources.get("limits") or {}
    flat_fields: Flat = {
        "resources.gpus": int(parse_quantity(limit.get(GPU, requests.get(GPU, 0))) or 0)
    }
    cpus = parse_quantity(requests.get("cpu", limit.get("cpu")))
    if cpus is not None:
        flat_fields["resources.cpus"] = cpus
    memory = gib(requests.get("memory", limit.get("memory")))
    l1 = l1_gib(worker, memory) if l1 is None else l1
    if l1 is not None:
        flat_fields["cache.l1.size_gib"] = l1
    if memory is not None:
        flat_fields["resources.memory_gib"] = round(memory - (l1 if l1 and l1_enabled else 0), 3)
    flat_fields["pod.resources"] = _further_resources(resources, requests, limit)
    return flat_fields


def l1_gib(worker: Mapping[str, Any], memory: float | None) -> float | None:
    """Return LMCache's configured size, else LMCache's default but at most a quarter of the memory.
    None without a memory size: the installation's default applies.
    """
    for variable in worker.get("environmentVariables") or []:
        quantity = (
            parse_quantity(variable.get("value")) if variable["name"] == _L1_VARIABLE else None
        )
        if quantity is not None and quantity > 0 and (memory is None or quantity < memory):
            return round(quantity, 3)
    if memory is None:
        return None
    return max(0.001, round(min(LMCACHE_L1_GIB, memory / 4), 3))


def _further_resources(
    given: Mapping[str, Any], requests: Mapping[str, Any], limit: Mapping[str, Any]
) -> Flat:
    """Return the resources not rendered from our own fields, so that those stay editable."""
    further: Flat = {}
    more = {name: value for name, value in requests.items() if name not in ("cpu", "memory", GPU)}
    capped = {name: value for name, value in limit.items() if name not in ("memory", GPU)}
    if "cpu" in limit and "cpu" not in requests:
        more["cpu"] = limit["cpu"]
    if "memory" in limit and parse_quantity(limit["memory"]) != parse_quantity(
        requests.get("memory", limit["memory"])
    ):
        capped["memory"] = limit["memory"]
    if more:
        further["requests"] = more
    if capped:
        further["limits"] = capped
    if given.get("claims"):
        further["claims"] = given["claims"]
    return further
