"""Model source of a worker on a cluster: volumes, init containers and environment.

After the init steps the weights are at `model`. A token is passed only to the download step.
Partial downloads are never used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from console.provisioners.pods import InitStep, SecretKey, Volume
from endpoints.spec.cluster_spec import SourceSpec
from endpoints.spec.endpoint_spec import EndpointSpec

MOUNT_PATH = "/opt/ml/model"
CACHE_PATH = "/emberline/models"
"""Download cache of workers that download the model themselves."""
_BUCKET_PATH = "/emberline/source"
_MODEL, _SOURCE = "model", "model-source"
_HF_ENV = {"HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"}

DOWNLOAD = """
import sys
from huggingface_hub import snapshot_download
model, revision, folder = sys.argv[1:]
snapshot_download(model, revision=revision or None, local_dir=folder)
print(model, "is in", folder, flush=True)
"""
READ = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
def read(path):
    done, room = 0, bytearray(1 << 24)
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(room):
            done += count
    return done
paths = [os.path.join(where, name) for where, _, names in os.walk(sys.argv[1]) for name in names]
with ThreadPoolExecutor(4) as pool:
    print(sum(pool.map(read, paths)), "bytes read of", len(paths), "files", flush=True)
"""
COPY = """
import os, shutil, sys
source, target = sys.argv[1:]
for where, _, names in os.walk(source):
    folder = os.path.join(target, os.path.relpath(where, source))
    os.makedirs(folder, exist_ok=True)
    for name in names:
        half = os.path.join(folder, "." + name + ".half")
        shutil.copyfile(os.path.join(where, name), half)
        os.replace(half, os.path.join(folder, name))
        print(name, flush=True)
"""


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Source of a model's files. `model`: argument of vLLM; `model_id`: their place, in L2 keys."""

    model: str
    model_id: str
    volumes: tuple[Volume, ...] = ()
    init: tuple[InitStep, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    secret_env: Mapping[str, SecretKey] = field(default_factory=dict)


def model_source(spec: EndpointSpec) -> ModelSource:
    source = spec.source
    makers = {"huggingface": _init_download, "s3": _bucket, "fsx": _file_system, "pvc": _claim}
    return makers[source.type](spec) if source.type else _self_downloading(spec)


def _self_downloading(spec: EndpointSpec) -> ModelSource:
    """The worker downloads the model, or its image contains it."""
    source = spec.source
    if spec.model.startswith("/"):
        return ModelSource(spec.model, f"path:{spec.model}", env={"HF_HUB_OFFLINE": "1"})
    return ModelSource(
        spec.model,
        spec.model,
        volumes=(Volume("models", {"emptyDir": {}}, CACHE_PATH),),
        env={**_HF_ENV, "HF_HOME": CACHE_PATH, **_mirror(source)},
        secret_env=_token(source),
    )


def _init_download(spec: EndpointSpec) -> ModelSource:
    source, path = spec.source, _path(spec)
    model = spec.weights
    step = InitStep(
        name="model-download",
        argv=("python3", "-c", DOWNLOAD, model, source.revision, path),
        # Not every image has a name for the pod's user and a writable home.
        env={**_HF_ENV, "HF_HOME": f"{path}/.cache/huggingface", **_mirror(source)},
        secret_env=_token(source),
        mounts={_MODEL: path},
    )
    return ModelSource(
        path,
        model,
        volumes=(Volume(_MODEL, {"emptyDir": {}}, path),),
        init=(step,),
        env={"HF_HUB_OFFLINE": "1"},
    )


def _bucket(spec: EndpointSpec) -> ModelSource:
    """Mount a bucket. Its page cache is ineffective, so weights to be held in memory are copied
    first.
    """
    source, path = spec.source, _path(spec)
    options = [f"region {source.region}"] if source.region else []
    options += [f"endpoint-url {source.endpoint}"] if source.endpoint else []
    prefix = source.location.strip("/")
    options += [f"prefix {prefix}/"] if prefix else []
    mounted: dict[str, Any] = {
        "mountOptions": options,
        "csi": {
            "driver": "s3.csi.aws.com",
            "volumeHandle": f"s3-{source.bucket}-{spec.name}",
            "volumeAttributes": {"bucketName": source.bucket},
        },
    }
    volumes: tuple[Volume, ...] = (Volume(_MODEL, mounted, path, read_only=True),)
    init: tuple[InitStep, ...] = ()
    if source.prefetch:
        volumes = (Volume(_SOURCE, mounted, read_only=True), Volume(_MODEL, {"emptyDir": {}}, path))
        argv = ("python3", "-c", COPY, _BUCKET_PATH, path)
        init = (InitStep("model-prefetch", argv, mounts={_SOURCE: _BUCKET_PATH, _MODEL: path}),)
    return _offline(path, f"s3://{source.bucket}/{prefix}", volumes, init)


def _file_system(spec: EndpointSpec) -> ModelSource:
    source, path = spec.source, _path(spec)
    folder = source.location.strip("/")
    dns = source.dns_name or f"{source.file_system}.fsx.{source.region}.amazonaws.com"
    mounted: dict[str, Any] = {
        "mountOptions": ["flock"],
        "csi": {
            "driver": "fsx.csi.aws.com",
            "volumeHandle": source.file_system,
            "volumeAttributes": {"dnsname": dns, "mountname": source.mount_name},
        },
    }
    volume = Volume(_MODEL, mounted, path, read_only=True, sub_path=folder)
    model_id = f"fsx://{source.file_system}/{folder}"
    return _offline(path, model_id, (volume,), _prefetch(spec, path, folder))


def _claim(spec: EndpointSpec) -> ModelSource:
    source, path = spec.source, _path(spec)
    folder = source.location.strip("/")
    claimed = {"persistentVolumeClaim": {"claimName": source.claim, "readOnly": True}}
    volume = Volume(_MODEL, claimed, path, read_only=True, sub_path=folder)
    model_id = f"pvc://{source.claim}/{folder}"
    return _offline(path, model_id, (volume,), _prefetch(spec, path, folder))


def _prefetch(spec: EndpointSpec, path: str, folder: str) -> tuple[InitStep, ...]:
    """Read the weights once to fill the node's page cache before the worker starts."""
    if not spec.source.prefetch:
        return ()
    # Init steps mount the whole volume, without a sub path.
    argv = ("python3", "-c", READ, f"{path}/{folder}")
    return (InitStep("model-prefetch", argv, mounts={_MODEL: path}),)


def _offline(
    path: str, model_id: str, volumes: tuple[Volume, ...], init: tuple[InitStep, ...]
) -> ModelSource:
    return ModelSource(path, model_id, volumes, init, {"HF_HUB_OFFLINE": "1"})


def _path(spec: EndpointSpec) -> str:
    return spec.source.mount_path.rstrip("/") or MOUNT_PATH


def _token(source: SourceSpec) -> dict[str, SecretKey]:
    if not source.token_secret:
        return {}
    return {"HF_TOKEN": SecretKey(source.token_secret, source.token_key or "token")}


def _mirror(source: SourceSpec) -> dict[str, str]:
    return {"HF_ENDPOINT": source.endpoint} if source.endpoint else {}
