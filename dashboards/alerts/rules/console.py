"""Alert rules for the console's metrics, its disk and budgets.

With a full disk Prometheus stores no samples: the last one of the past hour is used, so that the
alert does not resolve when the disk fills up. If the disk fills up between two scrapes, only the
age of the last sample shows it.
"""

from __future__ import annotations

from dashboards.alerts.rules.parameter import Parameter
from dashboards.alerts.rules.rule import PAGE, Rule, threshold

_PREFIX = "emberline_console_disk_"


def _last(name: str) -> str:
    return f"min by (path) (last_over_time({_PREFIX}{name}[1h]))"


_FREE_GIB = f"{_last('free_bytes')} / 2^30"
_REMEDY = (
    "Delete or move files below EMBERLINE_VAR, or enlarge its file system. Details: System page."
)

RULES: tuple[Rule, ...] = (
    Rule(
        "ConsoleMetricsStale",
        'time() - max by (job) (last_over_time(emberline_console_time_seconds{program="web"}[1d]))',
        "1m",
        "no metrics of the console were stored for <threshold>: Prometheus cannot store samples, "
        "or the console does not respond; other alerts may be missing",
        "Check the disk of Prometheus and its log, then /readyz of the console.",
        severity=PAGE,
        about="job",
        parameters=(threshold("Age of the latest sample", 180.0, 60.0, 86_400.0, "seconds"),),
    ),
    Rule(
        "BackgroundJobFailing",
        "min by (background_job) (emberline_console_background_job_ok)",
        "5m",
        "this background job of the console is late or fails",
        "Read its state and remedy on the System page or in `emberline doctor`.",
        condition="<measured> == 0",
        about="background_job",
        measured_in="",
    ),
    Rule(
        "AlertDeliveryFailing",
        "sum by (integration) (increase(alertmanager_notifications_failed_total[15m]))",
        "0m",
        "Alertmanager could not deliver notifications to a receiver of this kind",
        "Send a test to each of its receivers; the answer names the cause.",
        condition="<measured> > 0",
        about="integration",
        measured_in="",
    ),
    Rule(
        "DiskAlmostFull",
        f"{_last('free_bytes')} / {_last('size_bytes')}",
        "5m",
        "the console disk has less than <threshold> and less than <gib> GiB free, or less "
        "than <inodes> of its inodes",
        _REMEDY,
        condition=(
            f"(<measured> < <threshold> and {_FREE_GIB} < <gib>) "
            f"or {_last('inodes_free_ratio')} < <inodes>"
        ),
        about="path",
        parameters=(
            threshold("Free space threshold", 0.1, 0.001, 0.9, "share"),
            Parameter("gib", "Free space threshold (GiB)", 5.0, 0.01, 100_000.0),
            Parameter("inodes", "Free inodes threshold", 0.05, 0.0, 0.9, "share"),
        ),
    ),
    Rule(
        "DiskFullSoon",
        f"min by (path) (predict_linear({_PREFIX}free_bytes[1h], <hours> * 3600))",
        "15m",
        "the console disk is predicted to be full within <hours> h",
        _REMEDY,
        condition=f"<measured> < 0 and {_last('free_bytes')} / {_last('size_bytes')} < <threshold>",
        about="path",
        parameters=(
            Parameter("hours", "Prediction horizon (h)", 6.0, 0.1, 168.0),
            threshold("Only below free space", 0.4, 0.001, 1.0, "share"),
        ),
        measured_in="",
    ),
    Rule(
        "DiskFull",
        _FREE_GIB,
        "1m",
        "the console disk is full or read-only: changes fail and metrics are not stored; "
        "endpoints keep serving",
        _REMEDY,
        condition=(
            f"<measured> * 1024 < <mib> or {_last('inodes_free_ratio')} == 0 "
            f"or max by (path) (last_over_time({_PREFIX}read_only[1h])) == 1"
        ),
        severity=PAGE,
        about="path",
        parameters=(Parameter("mib", "Free space threshold (MiB)", 64.0, 1.0, 100_000.0),),
    ),
)

BUDGET_RULES: tuple[Rule, ...] = (
    Rule(
        "BudgetExceeded",
        "max by (budget, team, endpoint) (emberline_budget_used_ratio)",
        "5m",
        "more than <threshold> of the monthly budget is spent",
        "Check the Costs page for spending by endpoint. Pause or scale down idle endpoints, "
        "or raise the budget.",
        condition="<measured> >= <threshold>",
        about="budget",
        parameters=(threshold("Spent ratio threshold", 1.0, 0.05, 10.0, "share"),),
    ),
    Rule(
        "BudgetForecast",
        "max by (budget, team, endpoint) (emberline_budget_forecast_ratio)",
        "1h",
        "the monthly forecast exceeds <threshold> of the budget",
        "Check the Costs page for current spending by endpoint.",
        about="budget",
        parameters=(threshold("Forecast ratio threshold", 1.0, 0.05, 10.0, "share"),),
    ),
)
