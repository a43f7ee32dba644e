"""Rule file of the Prometheus that this installation runs.

Changes take effect without a restart. A file rejected by promtool or Prometheus never replaces a
loaded one; the status is stored for the page. Level-triggered: each pass compares desired and
actual state, under a lock, as tasks run at the same time. Does nothing if Prometheus is external.
"""

from __future__ import annotations

import hashlib
import logging
import re
import subprocess
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import httpx
from django.conf import settings
from django.utils import timezone

from console.core.fetch import fetch
from console.launcher import metrics_store
from console.launcher.layout import Layout, read_facts
from console.launcher.tools import prometheus_server
from console.processkit.files import hold_lock, write_private
from console.provisioners.base import ProvisionError
from console.provisioners.local.rpc import Supervisor
from console.provisioners.local.supervisord import log_path, socket_path
from console.system.rounds import Round
from console.system.rounds import RoundState as Doing
from dashboards.alerts.rules.rule_file import Settings, render
from dashboards.alerts.settings import selectors
from dashboards.alerts.settings.models import Load, RuleFile

log = logging.getLogger(__name__)

PROGRAM = "prometheus"
_CHECK_S = 20.0
_WAIT_S = 10.0
_ASK_S = 3.0
_UNDER_WAY = timedelta(seconds=10)
_MOST = 4 * 1024**2
_REPAIR_SHOWN = timedelta(days=7)
_HEAD_HOURS = 3
"""What Prometheus holds in the write-ahead log alone, before it writes a block."""
_READ = re.compile(
    rb"^prometheus_config_last_reload_(success_timestamp_seconds|successful) (\S+)$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class RuleFileLocation:
    """Rule file of the bundled Prometheus. `file`: path that Prometheus reads; `good`: copy of the
    last file it loaded.
    """

    file: Path
    url: str

    @property
    def good(self) -> Path:
        return self.file.with_suffix(".good")


def rule_file_location() -> RuleFileLocation | None:
    """Return None if this installation runs no Prometheus or queries another one."""
    layout = Layout(settings.EMBERLINE.var)
    port = read_facts(layout).get("prometheus_port")
    url = f"http://127.0.0.1:{port}"
    if not port or settings.EMBERLINE.prometheus_url != url or not layout.prometheus.is_dir():
        return None
    return RuleFileLocation(layout.prometheus / "alerts.yml", url)


def load() -> None:
    ours = rule_file_location()
    if ours is None:
        RuleFile.objects.all().delete()
        return
    try:
        with hold_lock(ours.file.with_suffix(".lock"), _WAIT_S):
            _load(ours)
    except TimeoutError as error:
        log.warning("alert rules: left to the next pass: %s", error)


def _load(ours: RuleFileLocation) -> None:
    text, digest = _wanted()
    file = selectors.rule_file()
    if file is not None and file.digest == digest and file.state == Load.REFUSED:
        return  # the same text would be rejected again
    if not ours.file.is_file() or ours.file.read_text() != text:
        why_not = _refused_by_promtool(ours, text)
        if why_not:
            _record_state(Load.REFUSED, digest, why_not)
            return
        if ours.good.is_file() and _reloaded(ours.url)[0] is False:
            _restore(ours, digest)  # or the earlier failure would be blamed on the new text
            return
        write_private(ours.file, text)
        _hang_up(digest)
        return
    if file is None or file.state != Load.LOADED or file.digest != digest:
        _check_loaded(ours, digest)


def has_work() -> bool:
    """Return whether `load` would change or query anything; reads no more than files and rows."""
    ours, file = rule_file_location(), selectors.rule_file()
    if ours is None:
        return file is not None
    text, digest = _wanted()
    if file is None or file.digest != digest or file.state == Load.WAITING:
        return True
    is_loaded = file.state == Load.LOADED
    return is_loaded and not (ours.file.is_file() and ours.file.read_text() == text)


_rendered: tuple[Settings, str, str] | None = None


def _wanted() -> tuple[str, str]:
    """Return the file's text and digest, rendered again only when a setting has changed."""
    global _rendered
    settings_now, last = selectors.settings(), _rendered
    if last is None or last[0] != settings_now:
        text = render(settings_now)
        digest = hashlib.sha256(text.encode()).hexdigest()[:32]
        _rendered = last = (settings_now, text, digest)
    return last[1], last[2]


def as_round() -> Round:
    """Return the entry of the System page. Errors are shown on Alerts, to users who may see
    them."""
    purpose = "Writes the alert rules to the bundled Prometheus"

    def line(state: Doing, text: str, remedy: str = "") -> Round:
        read_at = file.at if file is not None else None
        return Round("alert rules", purpose, state, read_at, text, remedy)

    file = selectors.rule_file()
    if rule_file_location() is None:
        text = "No bundled Prometheus. Import the rules into your own."
        return line(Doing.IDLE, text, "Download the rule file under Alerts, Rules.")
    if file is not None and file.state == Load.REFUSED:
        text = "Prometheus rejected the rules; the previous rules stay active."
        return line(Doing.FAILING, text, "Correct the error shown under Alerts, Rules.")
    if file is not None and (file.state, file.digest) == (Load.LOADED, _wanted()[1]):
        return line(Doing.WORKING, "The current rules are loaded.")
    text = "The latest rules are not loaded yet."
    remedy = "Loading takes seconds. If it persists, check celery-worker and prometheus."
    return line(Doing.LATE, text, remedy)


def storage_round() -> Round:
    purpose = "Loads the metrics from disk and sets unreadable blocks aside"
    if rule_file_location() is None:
        text = "No bundled Prometheus."
        return Round("metrics storage", purpose, Doing.IDLE, None, text)
    layout = Layout(settings.EMBERLINE.var)
    failure = metrics_store.last_failure(log_path(layout.var, PROGRAM))
    if failure:
        text = f"Prometheus does not start: {failure[:300]}."
        remedy = (
            "If this persists for a minute: make down, mv var/prometheus/data "
            "var/prometheus/data.unreadable, make up. Earlier metrics are lost."
        )
        return Round("metrics storage", purpose, Doing.FAILING, None, text, remedy)
    lost = metrics_store.list_losses(layout.prometheus)
    repaired = metrics_store.last_repair(log_path(layout.var, PROGRAM))
    recent = repaired is not None and abs(timezone.now() - repaired) < _REPAIR_SHOWN
    if repaired is not None and recent and not (lost and lost[-1].at > repaired.isoformat()):
        text = (
            "The write-ahead log was damaged, and Prometheus cut it off at "
            f"{repaired:%Y-%m-%d %H:%M} UTC: samples of up to {_HEAD_HOURS} hours may be missing."
        )
        remedy = f"Check the disk's health. Shown for {_REPAIR_SHOWN.days} days."
        return Round("metrics storage", purpose, Doing.LATE, repaired, text, remedy)
    if not lost:
        return Round("metrics storage", purpose, Doing.WORKING, None, "All blocks are readable.")
    last = lost[-1]
    period = f"from {last.since or 'an unknown time'} to {last.until or 'an unknown time'}"
    text = (
        f"{', '.join(last.moved)} could not be read and was set aside at {last.at} "
        f"({len(lost)} times so far): metrics {period} are missing. {last.failure[:200]}"
    )
    remedy = (
        "Check the disk's health, then rm -r var/prometheus/set-aside. Prometheus keeps running."
    )
    checked_at = datetime.fromisoformat(last.at)
    return Round("metrics storage", purpose, Doing.LATE, checked_at, text, remedy)


def _check_loaded(ours: RuleFileLocation, digest: str) -> None:
    """Record whether Prometheus has loaded the file."""
    took, read_at = _reloaded(ours.url)
    if took is None:
        _record_state(
            Load.WAITING,
            digest,
            "Prometheus does not respond; it loads the file at its next start.",
        )
    elif took and read_at >= ours.file.stat().st_mtime:
        write_private(ours.good, ours.file.read_text())
        _record_state(Load.LOADED, digest, "")
    elif took or _is_good(ours):
        _hang_up_again(digest)
    else:
        if ours.good.is_file():
            write_private(ours.file, ours.good.read_text())
        _hang_up(digest)
        _record_state(
            Load.REFUSED, digest, "Prometheus rejected the file and keeps the previous rules."
        )


def _is_good(ours: RuleFileLocation) -> bool:
    """Return whether Prometheus has loaded the file's text before: a failure is then of another."""
    return ours.good.is_file() and ours.good.read_text() == ours.file.read_text()


def _restore(ours: RuleFileLocation, digest: str) -> None:
    """Make Prometheus load the last good file again before it gets the next one."""
    if not _is_good(ours):
        write_private(ours.file, ours.good.read_text())
    _hang_up_again(digest)


def _hang_up_again(digest: str) -> None:
    """Repeat the reload unless the last one may be under way.

    A reload of the earlier text that ends after a new one is written would pass for a reload
    of the new one.
    """
    file = selectors.rule_file()
    if file is None or timezone.now() - file.at >= _UNDER_WAY:
        _hang_up(digest)
    elif file.state != Load.WAITING or file.digest != digest:
        _record_state(Load.WAITING, digest, "")


def _hang_up(digest: str) -> None:
    """Make Prometheus reload its configuration; the next pass checks the result."""
    try:
        Supervisor(socket_path(settings.EMBERLINE.var)).hang_up(PROGRAM)
    except ProvisionError as error:
        _record_state(Load.WAITING, digest, error.message)
        return
    _record_state(Load.WAITING, digest, "")


def _refused_by_promtool(ours: RuleFileLocation, text: str) -> str:
    """Return promtool's error; empty if there is none, or no promtool (Prometheus then checks)."""
    server = prometheus_server(Layout(settings.EMBERLINE.var))
    tool = server.with_name("promtool") if server else None
    if tool is None or not tool.is_file():
        return ""
    draft = ours.file.with_suffix(".draft")
    write_private(draft, text)
    try:
        done = subprocess.run(
            [tool, "check", "rules", str(draft)], capture_output=True, text=True, timeout=_CHECK_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("promtool failed, rules not checked: %s", type(error).__name__)
        return ""
    finally:
        draft.unlink(missing_ok=True)
    output = (done.stderr or done.stdout).replace(str(draft), "the rules")
    return "" if done.returncode == 0 else f"promtool: {output[-800:]}"


def _reloaded(url: str) -> tuple[bool | None, float]:
    """Return whether the latest reload succeeded (None: unknown) and the time of the last
    success."""
    try:
        status, body = fetch("GET", f"{url}/metrics", deadline_s=_ASK_S, max_bytes=_MOST)
    except (httpx.HTTPError, httpx.InvalidURL):
        return None, 0.0
    samples = {name: float(value) for name, value in _READ.findall(body)}
    if status != 200 or b"successful" not in samples:
        return None, 0.0
    return samples[b"successful"] == 1, samples.get(b"success_timestamp_seconds", 0.0)


def _record_state(state: Load, digest: str, message: str) -> None:
    fields = {"state": state, "digest": digest, "message": message}
    file = selectors.rule_file()
    if file is not None and {key: getattr(file, key) for key in fields} == fields:
        return
    RuleFile.objects.update_or_create(pk=1, defaults={**fields, "at": timezone.now()})
    if state == Load.REFUSED:
        log.error("alert rules rejected, previous rules stay in force: %s", message)
