"""Context of the spec rules: capabilities of this installation, read on each call."""

from __future__ import annotations

import os

from django.conf import settings

from cachetier.selectors import tier_clusters, tier_names
from console.clusters import selectors as clusters
from console.core.grants import Grant
from endpoints.models import Endpoint
from endpoints.placement import installation, model_hub
from endpoints.placement.capacity_check import refusals
from endpoints.spec.cluster_rules import ClusterFacts
from endpoints.spec.rules import Context


def context(
    *, updating: str = "", grants: frozenset[Grant] = frozenset(), team: str = ""
) -> Context:
    """Return the context of `check`. `updating`: the endpoint being changed, whose own name is not
    taken. `grants`: those of its `team`.
    """
    others = Endpoint.objects.exclude(name=updating).values_list("name", flat=True)
    return Context(
        memory_bytes=installation.memory_bytes(),
        shared_memory_bytes=installation.shared_memory_bytes(),
        cpus=os.cpu_count() or 1,
        gpus=installation.worker_gpus(),
        models=installation.models(),
        other_names=frozenset(others),
        tiers=frozenset(tier_names()),
        folder_exists=os.path.isdir,
        l2_file_refusal=installation.l2_file_refusal,
        l2_folder=str(settings.EMBERLINE.l2_secrets),
        misfits=refusals,
        defaults={
            "engine": settings.EMBERLINE.workers,
            "placement.cluster": clusters.default_cluster(),
        },
        clusters=frozenset(clusters.names()),
        cluster=cluster_facts,
        tier_clusters=tier_clusters(),
        grants=grants,
        team=team,
        model_folder=installation.is_model_folder,
        vllm_version=installation.vllm_version,
        hub_problem=model_hub.hub_problem,
    )


def apply_context(grants: frozenset[Grant], team: str = "") -> Context:
    """Return the context of `rules.standing`, without machine size and clusters."""
    return Context(
        l2_file_refusal=installation.l2_file_refusal,
        l2_folder=str(settings.EMBERLINE.l2_secrets),
        grants=grants,
        team=team,
        model_folder=installation.is_model_folder,
    )


def cluster_facts(name: str) -> ClusterFacts:
    inventory = clusters.inventory(name)
    return ClusterFacts(
        name=name,
        capabilities=None if inventory is None else inventory.capabilities,
        why_not=lambda capability: clusters.missing_reason(name, capability),
        worker_image=bool(settings.EMBERLINE.worker_image),
        engine_image=bool(settings.EMBERLINE.engine_image),
        priority_classes=None if inventory is None else inventory.offers.priority_classes,
    )
