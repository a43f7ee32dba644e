"""Optional cluster capabilities by name, with the remedy for each.

The name identifies a capability in discovery, forms and rendering.
"""

from __future__ import annotations

from dataclasses import dataclass

KEDA = "keda"
CERT_MANAGER = "cert-manager"
GATEWAY_API = "gateway-api"
PROMETHEUS_OPERATOR = "prometheus-operator"
METRICS_SERVER = "metrics-server"
NETWORK_POLICY = "network-policy"
S3_CSI = "s3-csi"
FSX_CSI = "fsx-csi"
EFS_CSI = "efs-csi"
NVIDIA_GPU = "nvidia-gpu"
AMD_GPU = "amd-gpu"
INGRESS = "ingress"
LOAD_BALANCER = "load-balancer"


@dataclass(frozen=True, slots=True)
class Capability:
    """Optional feature of a cluster. `label` is the display name, `gives` the features it enables,
    `remedy` how to install it.
    """

    name: str
    label: str
    gives: str
    remedy: str


_ALL = (
    Capability(
        KEDA,
        "KEDA",
        "autoscaling by any metric, and down to zero",
        "Install KEDA (https://keda.sh), or scale by CPU or manually.",
    ),
    Capability(
        CERT_MANAGER,
        "cert-manager",
        "certificates issued and renewed in the cluster",
        "Install cert-manager (https://cert-manager.io), or name a Secret with a certificate.",
    ),
    Capability(
        GATEWAY_API,
        "Gateway API",
        "routes through a Gateway",
        "Install the Gateway API and a controller for it, or expose by Ingress or load balancer.",
    ),
    Capability(
        PROMETHEUS_OPERATOR,
        "Prometheus Operator",
        "monitors and alert rules as cluster objects",
        "Install the Prometheus Operator; without it Services carry scrape annotations instead.",
    ),
    Capability(
        METRICS_SERVER,
        "metrics-server",
        "autoscaling by CPU",
        "Install metrics-server, or set a fixed number of replicas.",
    ),
    Capability(
        NETWORK_POLICY,
        "Network policies",
        "ports closed to unrelated pods",
        "Use a network plug-in that enforces NetworkPolicy (Calico, Cilium).",
    ),
    Capability(
        S3_CSI,
        "S3 CSI driver",
        "models read from S3 buckets",
        "Install the Mountpoint for Amazon S3 CSI driver (s3.csi.aws.com).",
    ),
    Capability(
        FSX_CSI,
        "FSx CSI driver",
        "models read from FSx for Lustre",
        "Install the FSx for Lustre CSI driver (fsx.csi.aws.com).",
    ),
    Capability(
        EFS_CSI,
        "EFS CSI driver",
        "models read from EFS",
        "Install the EFS CSI driver (efs.csi.aws.com).",
    ),
    Capability(
        NVIDIA_GPU,
        "NVIDIA GPUs",
        "workers on NVIDIA GPUs",
        "Add nodes with NVIDIA GPUs and the device plug-in (or the GPU operator).",
    ),
    Capability(
        AMD_GPU,
        "AMD GPUs",
        "workers on AMD GPUs",
        "Add nodes with AMD GPUs and AMD's device plug-in.",
    ),
    Capability(
        INGRESS,
        "Ingress",
        "exposure by an Ingress controller",
        "Install an Ingress controller with an IngressClass.",
    ),
    Capability(
        LOAD_BALANCER,
        "Load balancers",
        "exposure by a load balancer of its own",
        "Use a cluster whose cloud (or MetalLB) gives addresses to Services of type LoadBalancer.",
    ),
)

CAPABILITIES: dict[str, Capability] = {capability.name: capability for capability in _ALL}
"""In display order."""

CSI_DRIVERS = {"s3.csi.aws.com": S3_CSI, "fsx.csi.aws.com": FSX_CSI, "efs.csi.aws.com": EFS_CSI}
"""Capability required by a volume of a CSI driver."""

GPU_DOMAINS = {"nvidia.com": NVIDIA_GPU, "amd.com": AMD_GPU}
"""Capability of a GPU resource, by the domain of its name (nvidia.com/mig-1g.10gb)."""
