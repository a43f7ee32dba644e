"""External access to a port: Ingress, Gateway route or load balancer.

Options that the chosen kind does not support are rejected with an alternative, and streaming
responses of several minutes are not cut by default timeouts.
"""

from __future__ import annotations

from typing import Any

from console.provisioners.base import PermanentError, WorkloadSpec
from console.provisioners.kubernetes.api import kinds
from console.provisioners.kubernetes.api.capabilities import (
    CERT_MANAGER,
    GATEWAY_API,
    INGRESS,
    LOAD_BALANCER,
)
from console.provisioners.kubernetes.rendering.names import (
    around_of,
    make_object,
    port_numbers,
    public_name,
    selector,
)
from console.provisioners.kubernetes.rendering.target import RenderingTarget
from console.provisioners.pods import Exposure

# For the most common controller; others ignore them. Prompts may be large, stream pauses long.
_INGRESS_DEFAULTS = {
    "nginx.ingress.kubernetes.io/proxy-body-size": "0",
    "nginx.ingress.kubernetes.io/proxy-read-timeout": "3600",
    "nginx.ingress.kubernetes.io/proxy-send-timeout": "3600",
}
_EXTERNAL_DNS = "external-dns.alpha.kubernetes.io/hostname"
_AWS_CERTIFICATE = "service.beta.kubernetes.io/aws-load-balancer-ssl-cert"


def exposure_objects(spec: WorkloadSpec, target: RenderingTarget) -> list[dict[str, Any]]:
    exposure = around_of(spec).exposure
    if exposure is None:
        return []
    makers = {"ingress": _ingress, "gateway": _gateway, "loadbalancer": _load_balancer}
    if exposure.kind not in makers:
        raise _bad(spec, f"{exposure.kind!r} does not exist; choose one of {', '.join(makers)}")
    return [*makers[exposure.kind](spec, target, exposure), *_certificate(spec, target, exposure)]


def tls_secret(spec: WorkloadSpec, exposure: Exposure) -> str:
    """Return the Secret with the certificate; "" without TLS."""
    return exposure.tls_secret or (f"{spec.name}-tls" if exposure.issuer else "")


def _bad(spec: WorkloadSpec, why: str) -> PermanentError:
    return PermanentError("BadSpec", f"{spec.name!r} cannot be exposed: {why}.")


def _ingress(
    spec: WorkloadSpec, target: RenderingTarget, exposure: Exposure
) -> list[dict[str, Any]]:
    target.need(INGRESS, f"Exposing {spec.name!r} by Ingress")
    backend = {"service": {"name": spec.name, "port": {"name": exposure.port}}}
    paths = {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}
    host = {"host": exposure.host} if exposure.host else {}
    body: dict[str, Any] = {"rules": [{**host, "http": paths}]}
    if exposure.class_name:
        body["ingressClassName"] = exposure.class_name
    secret = tls_secret(spec, exposure)
    if secret:
        hosts = {"hosts": [exposure.host]} if exposure.host else {}
        body["tls"] = [{**hosts, "secretName": secret}]
    notes = {**_INGRESS_DEFAULTS, **exposure.annotations}
    return [make_object(spec, target.namespace, kinds.INGRESS, {"spec": body}, notes=notes)]


def _gateway(
    spec: WorkloadSpec, target: RenderingTarget, exposure: Exposure
) -> list[dict[str, Any]]:
    """Render a route of an existing Gateway, or of our own Gateway of a class."""
    target.need(GATEWAY_API, f"Exposing {spec.name!r} by a Gateway")
    out = []
    if exposure.gateway:
        if tls_secret(spec, exposure):
            raise _bad(
                spec,
                f"Gateway {exposure.gateway} is not managed by Emberline, and TLS "
                "is configured on its listeners: set none here, or set a Gateway "
                "class for a dedicated Gateway",
            )
        namespace, _, name = exposure.gateway.rpartition("/")
        parent = {"namespace": namespace or target.namespace, "name": name}
    elif exposure.class_name:
        parent = {"namespace": target.namespace, "name": spec.name}
        out.append(_own_gateway(spec, target, exposure))
    else:
        raise _bad(spec, "name a Gateway (NAMESPACE/NAME) or a Gateway class")
    reference = {"group": "gateway.networking.k8s.io", "kind": "Gateway", **parent}
    backend = {
        "group": "",
        "kind": "Service",
        "name": spec.name,
        "port": port_numbers(spec)[exposure.port],
        "weight": 1,
    }
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
        "backendRefs": [backend],
        # No timeout: a response streams for as long as it takes.
        "timeouts": {"request": "0s"},
    }
    body: dict[str, Any] = {"parentRefs": [reference], "rules": [rule]}
    if exposure.host:
        body["hostnames"] = [exposure.host]
    route, notes = kinds.HTTP_ROUTE, exposure.annotations
    return [*out, make_object(spec, target.namespace, route, {"spec": body}, notes=notes)]


def _own_gateway(spec: WorkloadSpec, target: RenderingTarget, exposure: Exposure) -> dict[str, Any]:
    secret = tls_secret(spec, exposure)
    listener: dict[str, Any] = {"name": "http", "port": 80, "protocol": "HTTP"}
    if secret:
        certificate = {"group": "", "kind": "Secret", "name": secret}
        tls = {"mode": "Terminate", "certificateRefs": [certificate]}
        listener = {"name": "https", "port": 443, "protocol": "HTTPS", "tls": tls}
    if exposure.host:
        listener["hostname"] = exposure.host
    listener["allowedRoutes"] = {"namespaces": {"from": "Same"}}
    body = {"gatewayClassName": exposure.class_name, "listeners": [listener]}
    notes = exposure.annotations
    return make_object(spec, target.namespace, kinds.GATEWAY, {"spec": body}, notes=notes)


def _load_balancer(
    spec: WorkloadSpec, target: RenderingTarget, exposure: Exposure
) -> list[dict[str, Any]]:
    """Render a separate Service, so that only this port is public."""
    target.need(LOAD_BALANCER, f"Exposing {spec.name!r} by a load balancer")
    if tls_secret(spec, exposure):
        raise _bad(
            spec,
            "a Service load balancer cannot terminate TLS with a Secret: use an "
            "Ingress or a Gateway, or your cloud's certificate annotations",
        )
    notes = dict(exposure.annotations)
    if exposure.host:
        notes.setdefault(_EXTERNAL_DNS, exposure.host)
    outside = 443 if _AWS_CERTIFICATE in notes else 80
    port = {"name": exposure.port, "port": outside, "targetPort": exposure.port, "protocol": "TCP"}
    body: dict[str, Any] = {
        "type": "LoadBalancer",
        "selector": selector(spec.name),
        "ports": [port],
    }
    if exposure.class_name:
        body["loadBalancerClass"] = exposure.class_name
    name = public_name(spec.name)
    body = {"spec": body}
    return [make_object(spec, target.namespace, kinds.SERVICE, body, name=name, notes=notes)]


def _certificate(
    spec: WorkloadSpec, target: RenderingTarget, exposure: Exposure
) -> list[dict[str, Any]]:
    if not exposure.issuer:
        return []
    target.need(CERT_MANAGER, f"A certificate for {spec.name!r}")
    if not exposure.host:
        raise _bad(spec, "a certificate is for a host name: set one")
    kind, _, name = exposure.issuer.rpartition("/")
    body = {
        "secretName": tls_secret(spec, exposure),
        "dnsNames": [exposure.host],
        "issuerRef": {"group": "cert-manager.io", "kind": kind or "Issuer", "name": name},
        "usages": ["server auth", "digital signature"],
        "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
    }
    return [make_object(spec, target.namespace, kinds.CERTIFICATE, {"spec": body})]
