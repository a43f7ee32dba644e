"""Where this installation keeps what workers need; read for each pass, remembered where costly."""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path

from django.conf import settings

from cachetier.vllm_connector.settings import model_identity
from endpoints.placement.installation import model_location
from endpoints.spec.endpoint_spec import EndpointSpec
from endpoints.workload.model_source import model_source
from endpoints.workload.worker_spec import Installation


def installation(spec: EndpointSpec) -> Installation:
    if spec.on_cluster:
        return _in_images(spec)
    location = model_location(spec.model)
    return Installation(
        python=sys.executable,
        vllm_python=str(settings.EMBERLINE.vllm_python),
        repo=str(settings.BASE_DIR),
        model=location,
        model_id=_identity(location, _age(location)) if spec.cache.l2.enabled else "",
    )


def _in_images(spec: EndpointSpec) -> Installation:
    """What is in a pod is where its image has it."""
    source = model_source(spec)
    return Installation(
        python="python3",
        vllm_python="python3",
        repo="",
        model=source.model,
        model_id=source.model_id,
        worker_image=settings.EMBERLINE.worker_image,
        engine_image=settings.EMBERLINE.engine_image,
    )


@lru_cache(maxsize=256)
def _identity(location: str, _age: tuple[tuple[str, int, int], ...]) -> str:
    return model_identity(location)


def _age(location: str) -> tuple[tuple[str, int, int], ...]:
    """Changes with the files of a model's folder, so that the digest is read again only then."""
    folder = Path(location)
    if not location.startswith("/") or not folder.is_dir():
        return ()
    return tuple(
        (path.name, stat.st_size, stat.st_mtime_ns)
        for path in sorted(folder.iterdir())
        for stat in (path.stat(),)
    )
