"""Ownership of an endpoint by an InferenceEndpointConfig, as the controller records it."""

from __future__ import annotations

from endpoints.controller.models import Follow, Owned
from endpoints.owners import Owner


def give_to(owner: Owner, endpoint: str) -> None:
    follow, _ = Follow.objects.get_or_create(cluster=owner.cluster, namespace=owner.namespace)
    Owned.objects.filter(endpoint=endpoint).delete()
    Owned.objects.create(uid=endpoint, follow=follow, name=owner.name, endpoint=endpoint)
