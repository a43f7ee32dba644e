"""Fields of an endpoint's pods: placement, weights, containers, rollout (see `fields`)."""

from __future__ import annotations

from endpoints.spec.field import Effect
from endpoints.spec.section import DAY_S, NAMED, PAIRS, section_fields
from endpoints.spec.validators import env_problem, label_name_problem, path_problem

SOURCES = ("", "huggingface", "s3", "fsx", "pvc")
_FIXED, _RESTART, _LIVE = Effect.FIXED, Effect.RESTART, Effect.LIVE

PLACEMENT = (
    section_fields(
        "placement.cluster",
        str,
        "Cluster",
        "Where it runs. Empty: this machine. It cannot be changed.",
        _FIXED,
        "Give the name of a cluster of the page Clusters, or leave it empty.",
        **NAMED,
    ),
    section_fields(
        "placement.namespace",
        str,
        "Namespace",
        "Of the cluster. Empty: the one given with the cluster. It cannot be changed.",
        _FIXED,
        "Give up to 63 lower-case letters, digits and dashes, or leave it empty.",
        rule=label_name_problem,
    ),
    section_fields(
        "placement.instance_types",
        tuple,
        "Instance types",
        "One a line, the preferred one first. Empty: any node that has what is asked for.",
        _RESTART,
    ),
    section_fields(
        "placement.node_selector",
        dict,
        "Node selector",
        "Labels which a node must have.",
        _RESTART,
        **PAIRS,
    ),
    section_fields(
        "placement.node_affinity",
        dict,
        "Node affinity",
        "As Kubernetes writes nodeAffinity. Not together with instance types.",
        _RESTART,
    ),
    section_fields(
        "placement.tolerations", list, "Tolerations", "As Kubernetes writes them.", _RESTART
    ),
    section_fields(
        "placement.priority_class",
        str,
        "Priority class",
        "Empty: the cluster's default.",
        _RESTART,
        **NAMED,
    ),
    section_fields(
        "placement.scheduler", str, "Scheduler", "Empty: the cluster's default.", _RESTART, **NAMED
    ),
)

SOURCE = (
    section_fields(
        "source.type",
        str,
        "Model source",
        "Where the weights come from. Empty: a Hugging Face name is downloaded by the worker, a "
        "path is one of its image.",
        _RESTART,
        choices=SOURCES,
    ),
    section_fields(
        "source.location",
        str,
        "Path within the source",
        "For s3, fsx and pvc: the folder of the model. For huggingface: organisation/name, empty "
        "for the field model.",
        _RESTART,
    ),
    section_fields(
        "source.prefetch",
        bool,
        "Prefetch",
        "Read the weights into memory before the worker starts.",
        _RESTART,
    ),
    section_fields(
        "source.revision",
        str,
        "Revision",
        "For huggingface: a branch, tag or commit. Empty: main.",
        _RESTART,
    ),
    section_fields(
        "source.token_secret",
        str,
        "Token secret",
        "For huggingface: a Secret in the namespace that holds the token.",
        _RESTART,
        **NAMED,
    ),
    section_fields("source.token_key", str, "Token key", "Which key of that Secret.", _RESTART),
    section_fields("source.bucket", str, "Bucket", "For s3.", _RESTART),
    section_fields("source.region", str, "Region", "For s3.", _RESTART),
    section_fields("source.file_system", str, "File system", "For fsx: its id, fs-...", _RESTART),
    section_fields("source.dns_name", str, "DNS name", "For fsx.", _RESTART),
    section_fields("source.mount_name", str, "Mount name", "For fsx.", _RESTART),
    section_fields(
        "source.claim",
        str,
        "Volume claim",
        "For pvc: a PersistentVolumeClaim in the namespace, which holds the model.",
        _RESTART,
        **NAMED,
    ),
    section_fields(
        "source.mount_path",
        str,
        "Mounted at",
        "Where the worker finds the model. Empty: /opt/ml/model.",
        _RESTART,
        "Give an absolute path, or leave it empty.",
        rule=path_problem,
    ),
    section_fields(
        "source.endpoint",
        str,
        "Address of the store",
        "For s3 that is not Amazon's, and for a mirror of Hugging Face.",
        _RESTART,
    ),
)

POD = (
    section_fields(
        "pod.image", str, "Image", "Empty: the installation's image of workers.", _RESTART
    ),
    section_fields("pod.command", tuple, "Command", "Empty: Emberline's own.", _RESTART),
    section_fields(
        "pod.working_dir",
        str,
        "Working directory",
        "Empty: the folder of its files.",
        _RESTART,
        "Give an absolute path, or leave it empty.",
        rule=path_problem,
    ),
    section_fields("pod.env", dict, "Environment", "Names and values.", _RESTART, rule=env_problem),
    section_fields(
        "pod.env_from",
        list,
        "Environment from elsewhere",
        "Entries as Kubernetes writes env, with valueFrom.",
        _RESTART,
    ),
    section_fields(
        "pod.port", int, "Port", "0: Emberline's own.", _RESTART, minimum=0, maximum=65535
    ),
    section_fields(
        "pod.probes",
        dict,
        "Probes",
        "liveness, readiness and startup, as Kubernetes writes them.",
        _RESTART,
    ),
    section_fields(
        "pod.resources",
        dict,
        "Resources as written",
        "requests and limits, over what Resources above says.",
        _RESTART,
    ),
    section_fields("pod.volumes", list, "Volumes", "As Kubernetes writes them.", _RESTART),
    section_fields(
        "pod.init_containers", list, "Init containers", "As Kubernetes writes them.", _RESTART
    ),
    section_fields(
        "pod.service_account", str, "Service account", "Empty: none.", _RESTART, **NAMED
    ),
    section_fields(
        "pod.pull_secrets", tuple, "Pull secrets", "Secrets for the image, one a line.", _RESTART
    ),
)

ROLLOUT = (
    section_fields(
        "rollout.deadline_s",
        int,
        "Deadline",
        "Seconds within which a change must serve.",
        _RESTART,
        minimum=30,
        maximum=DAY_S,
    ),
    section_fields(
        "rollout.auto_rollback",
        bool,
        "Automatic rollback",
        "Go back to the revision that served last when a change fails.",
        _LIVE,
    ),
    section_fields(
        "rollout.drain_s",
        int,
        "Drain",
        "Seconds a leaving worker goes on answering while the router turns away.",
        _RESTART,
        minimum=0,
        maximum=3600,
    ),
)
