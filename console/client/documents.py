"""Typed dictionaries of API responses.

A newer console may add fields; nothing is validated at run time.
"""

from __future__ import annotations

from typing import Any, TypedDict


class RolloutStep(TypedDict):
    code: str
    state: str
    started_at: str
    finished_at: str
    message: str


class Worker(TypedDict):
    name: str
    state: str
    url: str
    pid: int
    started_at: str | None
    restarts: int
    simulated: bool
    message: str
    reason: str
    stage: str
    node: str
    containers: list[str]


class Drift(TypedDict):
    workload: str
    key: str
    wanted: Any
    found: Any
    manager: str
    since: float


class Endpoint(TypedDict):
    id: str
    name: str
    phase: str
    reason: str
    message: str
    remedy: str
    detail: str
    generation: int
    observed_generation: int
    url: str
    public_url: str
    replicas: int
    ready_replicas: int
    wanted_replicas: int
    served_revision: int
    simulated: bool
    phase_since: str
    created_at: str
    created_by: str
    spec: dict[str, Any]
    steps: list[RolloutStep]
    workers: list[Worker]
    drift: list[Drift]


class EndpointEventDocument(TypedDict):
    id: int
    reason: str
    severity: str
    subject: str
    message: str
    count: int
    first_at: str
    last_at: str


class Revision(TypedDict):
    number: int
    verb: str
    author: str
    created_at: str
    spec: dict[str, Any]


class Key(TypedDict):
    id: str
    name: str
    prefix: str
    created_at: str
    created_by: str


class NewKey(Key):
    key: str


class DoctorFinding(TypedDict):
    code: str
    severity: str
    what: str
    evidence: list[str]
    fix: str


class DoctorCheck(TypedDict):
    code: str
    title: str
    state: str
    why: str


class Examination(TypedDict):
    endpoint: str
    strategy: str
    workers: list[str]
    verdict: str
    seconds: float
    findings: list[DoctorFinding]
    checks: list[DoctorCheck]


class Cluster(TypedDict):
    name: str
    kind: str
    context: str
    namespace: str
    reach: str
    phase: str
    reason: str
    message: str
    server_version: str
    seen_at: str | None
    capabilities: list[dict[str, Any]]
    node_pools: list[dict[str, Any]]
    rights: dict[str, Any]
    used_by: list[str]


class CacheTier(TypedDict):
    name: str
    memory_bytes: int
    disk_bytes: int
    node_count: int
    copies: int
    policy: str
    cluster: str
    namespace: str
    cpu_millis: int
    cpu_limit_millis: int
    memory_limit_bytes: int
    phase: str
    reason: str
    message: str
    url: str
    nodes: list[dict[str, Any]]
    imbalance: float | None
    rebalancing: dict[str, Any] | None
    usage: dict[str, Any]
    used_by: list[str]


class InstanceType(TypedDict):
    name: str
    vcpus: int
    memory_gib: float
    gpu: str
    gpus: int
    gpu_memory_gib: float
    price_usd_hour: float | None
    price_date: str | None
    price_source: str
    origin: str
    changed_by: str


class ModelPlacement(TypedDict):
    verdict: str
    machine: str
    gpu: str
    gpus: int
    max_context: int


class Model(TypedDict):
    name: str
    local: bool
    license: str
    gated: bool
    params: int
    weight_bytes: int
    max_context: int
    here: ModelPlacement | None
    instance: ModelPlacement | None


class CheckedModel(Model):
    hub: dict[str, Any] | None


class Costs(TypedDict):
    range: str
    usd_hour_now: float | None
    cost_usd: float | None
    saved_usd: float | None
    problem: str
    endpoints: list[dict[str, Any]]


class GrafanaDashboard(TypedDict):
    uid: str
    title: str
    board: str
    scope: str
    panels: int


class ExportedFile(TypedDict):
    path: str
    text: str
    media_type: str


class Me(TypedDict):
    username: str
    role: str
    token: str | None
