"""Models, memory and GPUs of this machine, and paths of this installation.

Read on each call: models and memory limits may change while the console runs.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import psutil
from django.conf import settings

from console.core import confined_files
from console.core.confined_files import FileRefused
from endpoints.spec import state_store
from endpoints.spec.endpoint_spec import EndpointSpec
from endpoints.spec.worker_options import options_of, supported_versions
from endpoints.workload.kv_identity import kv_identity
from endpoints.workload.model_source import model_source
from endpoints.workload.worker_spec import Installation

LIMIT_FILES = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
DEMO_MODEL = "smollm2-135m-instruct"
_PACKAGE = re.compile(r"vllm(?:_cpu|_rocm)?-(\d+\.\d+\.\d+)[^-]*\.dist-info")
_VLLM_IMAGE = re.compile(r"(?:(?:.*/)?vllm/)?vllm[-\w]*:v?(\d+\.\d+\.\d+)(?:[-+].*)?")
_OWN_IMAGE = re.compile(r"(?:.*/)?emberline-worker(?:[:@].*)?")


def l2_file_refusal(path: str) -> FileRefused | None:
    """Return why a Redis TLS file named by an endpoint cannot be used, None if it can."""
    return confined_files.refusal(path, settings.EMBERLINE.l2_secrets)


def is_model_folder(path: str) -> bool:
    """Return whether the resolved path is inside the installation's model folder."""
    try:
        return Path(path).resolve().is_relative_to((settings.EMBERLINE.var / "models").resolve())
    except (OSError, ValueError):  # path too long
        return False


def models() -> dict[str, str]:
    """Return the selectable models with their folders; "" for the demo model before its
    preparation.
    """
    root = settings.EMBERLINE.var / "models"
    models = {DEMO_MODEL: ""}
    for config in sorted(root.glob("*/config.json")):
        models[config.parent.name] = str(config.parent)
    return models


def model_location(model: str) -> str:
    return models().get(model) or model


def memory_bytes() -> int:
    total = int(psutil.virtual_memory().total)
    for limit in LIMIT_FILES:
        try:
            text = Path(limit).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdecimal():
            total = min(total, int(text))
    return total


def shared_memory_bytes() -> int:
    try:
        file_system = os.statvfs("/dev/shm")  # noqa: S108 (read only)
    except OSError:
        return 0
    return file_system.f_blocks * file_system.f_frsize


def gpus() -> int:
    return sum(
        path.name.removeprefix("nvidia").isdecimal() for path in Path("/dev").glob("nvidia*")
    )


def worker_gpus() -> int:
    """Return the GPUs for replicas; the local provisioner assigns none."""
    return 0 if settings.EMBERLINE.provisioner == "local" else gpus()


def vllm_version(spec: EndpointSpec) -> str:
    """Return the vLLM version that would run the spec, "" if unknown. A custom command or an image
    of another name may run anything; Emberline's own image has the locked version.
    """
    if spec.simulated or spec.pod.command:
        return ""
    if not spec.on_cluster:
        packages = settings.EMBERLINE.vllm_python.parent.parent / "lib"
        return _installed_version(str(packages))
    image = spec.pod.image or settings.EMBERLINE.worker_image
    if _OWN_IMAGE.fullmatch(image):
        return supported_versions()[-1]
    named = _VLLM_IMAGE.fullmatch(image)
    return named[1] if named else ""


def unvalidated_arguments(spec: EndpointSpec) -> str:
    """Return why the worker arguments are not validated before the start, "" if they are."""
    version = vllm_version(spec)
    if not spec.worker_args or options_of(version) is not None:
        return ""
    if spec.simulated:
        reason = "simulated workers ignore them"
    elif spec.pod.command:
        reason = "the pod has its own command"
    elif version:
        reason = f"the options of vLLM {version} are unknown to this console"
    elif spec.on_cluster:
        image = spec.pod.image or settings.EMBERLINE.worker_image or "the pod"
        reason = f"the vLLM version of {image} is unknown"
    else:
        reason = "vLLM is not installed on this machine"
    return f"Worker arguments not validated: {reason}."


def separate_routers_warning(spec: EndpointSpec) -> str:
    """Return what several routers without a state store would cost here, "" if they share one."""
    return state_store.separate_routers_warning(spec, settings.EMBERLINE.state_store)


def _installed_version(library: str) -> str:
    paths = Path(library).glob("python*/site-packages/vllm*.dist-info")
    versions = [named[1] for path in paths if (named := _PACKAGE.fullmatch(path.name))]
    return max(versions, default="")


def installation(spec: EndpointSpec) -> Installation:
    if spec.on_cluster:
        return _image_installation(spec)
    location = model_location(spec.model)
    return Installation(
        python=sys.executable,
        vllm_python=str(settings.EMBERLINE.vllm_python),
        repo=str(settings.BASE_DIR),
        model=location,
        model_id=kv_identity(spec, location),
    )


def _image_installation(spec: EndpointSpec) -> Installation:
    """Return the paths inside the images, for pods."""
    source = model_source(spec)
    return Installation(
        python="python3",
        vllm_python="python3",
        repo="",
        model=source.model,
        model_id=kv_identity(spec, source.model_id),
        worker_image=settings.EMBERLINE.worker_image,
        engine_image=settings.EMBERLINE.engine_image,
    )
