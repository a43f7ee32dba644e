"""Users and endpoints created through the console's own code."""

from __future__ import annotations

from typing import Any

from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from console.accounts.models import User
from endpoints import actions
from endpoints.models import Endpoint, EndpointStatus, Replica


def person(role: str) -> User:
    """Return the user with this role."""
    name = f"one-{role}"
    found = User.objects.filter(username=name).first()
    return found or User.objects.create_user(name, password="x", role=role)


def browser(role: str) -> Client:
    client = Client()
    client.force_login(person(role))
    return client


def program(role: str) -> APIClient:
    client = APIClient()
    client.force_authenticate(person(role))
    return client


def make_endpoint(name: str = "demo", **spec: Any) -> Endpoint:
    """Create an endpoint as an operator; nothing runs."""
    data = {"name": name, "model": "smollm2-135m-instruct", "engine": "simulated", **spec}
    return actions.create(actions.SYSTEM, data)


def pretend_ready(
    endpoint: Endpoint, *, url: str = "", admin_url: str = "", workers: dict[str, str] | None = None
) -> Endpoint:
    """Write the status of a reconciler: addresses, and workers by name and URL."""
    EndpointStatus.objects.filter(pk=endpoint.pk).update(
        phase="Ready",
        observed_generation=endpoint.generation,
        url=url,
        admin_url=admin_url,
        ready_replicas=len(workers or {}),
    )
    for index, (name, address) in enumerate((workers or {}).items()):
        Replica.objects.create(
            endpoint=endpoint,
            name=name,
            index=index,
            state="ready",
            url=address,
            simulated=True,
            started_at=timezone.now(),
        )
    return Endpoint.objects.select_related("status").get(pk=endpoint.pk)
