"""Deadlines of the product for answers of other processes, extended for the tests.

Two seconds are enough on a machine with time, not beside a busy suite. Tests of a deadline set
their own.
"""

from __future__ import annotations

import sys

PATIENT_S = 30.0
DEADLINES = {
    "cachetier.client.membership": ("_QUERY_TIMEOUT_S",),
    "cachetier.node_admin": ("FLUSH_DEADLINE_S",),
    "cachetier.tier.node_stats": ("DEADLINE_S",),
    "console.celery_watch": ("_BROKER_S",),
    "console.provisioners.local.programs": ("DEADLINE_S",),
    "dashboards.alerts.settings.rule_file": ("_ASK_S",),
    "dashboards.prometheus.http.aws": ("_DEADLINE_S",),
    "dashboards.prometheus.http.session": ("_CONNECT_S",),
    "dashboards.prometheus.sources.diagnosis": ("_DEADLINE_S",),
    "endpoints.placement.model_hub": ("DEADLINE_S",),
    "endpoints.reconcile.l2_status": ("CHECK_S",),
    "endpoints.router.canary.collection": ("DEADLINE_S",),
    "routing.client.admin_client": ("DEADLINE_S",),
    "endpoints.router.component": ("ASK_DEADLINE_S",),
    "endpoints.router.key_usage": ("DEADLINE_S",),
    "endpoints.router.search": ("BUDGET_S", "DEADLINE_S"),
    "dashboards.insight.traces.collection": ("DEADLINE_S",),
}


def extend_deadlines() -> None:
    """Change the modules that are imported; importing the others would take seconds."""
    for module, names in DEADLINES.items():
        if module in sys.modules:
            for name in names:
                setattr(sys.modules[module], name, PATIENT_S)
