"""Celery application and beat schedule: `celery -A console.celery_app worker|beat`.

Losing the broker, a message or a worker delays work by seconds only: messages are acknowledged
after the work, and periodic sweeps find unannounced work.
"""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

from django.conf import settings  # reads the line above

from console import celery_watch

# Sweeps find work without a message. A sweep older than its period expires: the next one does the
# same work, and expired ones do not pile up behind a busy worker.
_SWEEP_S = 2.0
_PRUNE_S = 3600.0
_LOOK_S = 30.0
_CLUSTERS_S = 10.0
_USAGE_S = 10.0
_CANARIES_S = 10.0
_TRACES_S = 30.0
_ADVICE_S = 60.0
_RULES_S = 30.0
_TARGETS_S = 5.0
_MONEY_S = 60.0
_CALIBRATION_S = 30.0
_ALERTS_S = 10.0
_AUDIT_LINK_S = 10.0
_AUDIT_CHECK_S = 600.0
_POLL_S = 5
"""Longest wait for a message before the worker polls again (s); a message ends the wait."""
_IDLE = {
    "polling_interval": _POLL_S,
    # Unacknowledged messages are looked for as often as by default, in one wake-up instead of ten.
    "unacked_restore_interval": 100,
    "unacked_restore_throttle": 1,
    "reauth_check_interval": 60,
}

_IN_MEMORY = settings.EMBERLINE.redis_url.startswith("memory://")

app = Celery("emberline")
app.conf.update(
    broker_url=settings.EMBERLINE.redis_url,
    result_backend="cache+memory://" if _IN_MEMORY else settings.EMBERLINE.redis_url,
    accept_content=["json"],
    task_serializer="json",
    result_serializer="json",
    task_ignore_result=True,
    timezone="UTC",
    enable_utc=True,
    task_default_queue="emberline",
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    # No task waits; a minute means that it hangs. Only a process pool can enforce the limit, so in
    # the thread pool every step needs its own deadline.
    task_soft_time_limit=60,
    task_time_limit=75,
    # Redelivery after the worker was killed (s); longer than the limit above, so that no message is
    # redelivered while its first receiver still works on it.
    broker_transport_options={
        "visibility_timeout": 120,
        "socket_connect_timeout": 2,
        **({} if _IN_MEMORY else _IDLE),
    },
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    worker_cancel_long_running_tasks_on_connection_loss=True,
    task_publish_retry_policy={"max_retries": 1, "interval_start": 0, "interval_max": 0.5},
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    beat_schedule={
        name: {"task": name, "schedule": period_s, "options": {"expires": period_s}}
        for name, period_s in (
            ("endpoints.tasks.sweep", _SWEEP_S),
            ("cachetier.tasks.sweep", _SWEEP_S),
            ("endpoints.tasks.prune", _PRUNE_S),
            ("console.api.tasks.prune", _PRUNE_S),
            ("endpoints.controller.tasks.sweep", _SWEEP_S),
            ("endpoints.router.tasks.collect_usage", _USAGE_S),
            ("endpoints.router.tasks.collect_canaries", _CANARIES_S),
            ("dashboards.insight.traces.tasks.collect_traces", _TRACES_S),
            ("dashboards.insight.traces.tasks.prune_traces", _PRUNE_S),
            ("console.system.tasks.look", _LOOK_S),
            ("console.clusters.tasks.sweep", _CLUSTERS_S),
            ("dashboards.benchmarks.tasks.sweep", _SWEEP_S),
            ("dashboards.insight.whatif.tasks.sweep", _SWEEP_S),
            ("dashboards.insight.advisor.tasks.check", _ADVICE_S),
            ("dashboards.alerting.tasks.load", _RULES_S),
            ("dashboards.tasks.update_targets", _TARGETS_S),
            ("dashboards.money.tasks.sweep", _MONEY_S),
            ("dashboards.money.tasks.calibrate", _CALIBRATION_S),
            ("dashboards.notify.tasks.look", _ALERTS_S),
            ("dashboards.alert_objects.tasks.sweep", _CLUSTERS_S),
            ("dashboards.notify.tasks.prune", _PRUNE_S),
            ("console.audit.tasks.link", _AUDIT_LINK_S),
            ("console.audit.tasks.check", _AUDIT_CHECK_S),
        )
    },
)
app.autodiscover_tasks()
celery_watch.install(app, settings.EMBERLINE.admin)
