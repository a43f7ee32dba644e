"""Configuration file of this installation's Alertmanager.

Changes take effect without a restart. A configuration that amtool or Alertmanager rejects never
replaces a loaded one; the status is stored for the pages. Level-triggered: each pass compares
desired and actual state, under a lock, as tasks run at the same time. Does nothing without
`EMBERLINE_ALERTMANAGER_FILE`, or where its folder does not exist: in the chart, the file is in
another pod, with a process that writes it.
"""

from __future__ import annotations

import json
import logging
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Final

from django.conf import settings
from django.utils import timezone
from django.utils.crypto import salted_hmac

from console.core import yaml_reader
from console.launcher.alertmanager import find_amtool
from console.launcher.layout import Layout
from console.processkit.files import hold_lock, write_private
from dashboards.alerts.alertmanager import api_client, selectors
from dashboards.alerts.alertmanager.config.document import TEMPLATES, AlertmanagerConfig
from dashboards.alerts.alertmanager.models import ConfigFile, ConfigState
from dashboards.prometheus.http.session import NoReplyError

log = logging.getLogger(__name__)
_HEAD: Final = "# Written by Emberline; changes are overwritten. Edit receivers under Alerts.\n"
_CHECK_S: Final = 20.0
_WAIT_S: Final = 10.0
_SALT: Final = "dashboards.alerts.alertmanager.config"


def sync() -> None:
    """Write the configuration if it has changed, and have Alertmanager load it."""
    path = settings.EMBERLINE.alertmanager_file
    if path is None:
        ConfigFile.objects.all().delete()
        return
    if not path.parent.is_dir():
        return
    try:
        with hold_lock(path.with_suffix(".lock"), _WAIT_S):
            _sync(path)
    except TimeoutError as error:
        log.warning("Alertmanager configuration: left to the next pass: %s", error)


def _sync(path: Path) -> None:
    config, digest = selectors.config(), wanted_digest()
    file = selectors.config_file()
    if file is not None and file.digest == digest:
        if file.state == ConfigState.REFUSED or (
            file.state == ConfigState.LOADED and path.is_file()
        ):
            return
    elif fault := _amtool_fault(config):
        _record(ConfigState.REFUSED, digest, fault)
        return
    _load(path, config, digest)


def has_work() -> bool:
    """Return whether `sync` would change or query anything; reads no more than files and rows."""
    path, file = settings.EMBERLINE.alertmanager_file, selectors.config_file()
    if path is None:
        return file is not None
    if not path.parent.is_dir():
        return False
    settled = file is not None and file.state != ConfigState.WAITING and path.is_file()
    return not settled or file is None or file.digest != wanted_digest()


def wanted_digest() -> str:
    """Return the digest of the desired configuration without decrypting a secret.

    Receivers' generations stand for their secrets; the key keeps passwords from being guessed.
    """
    config, mail = selectors.config(), settings.MAIL
    generations = list(selectors.enabled_receivers().values_list("name", "generation"))
    parts = [config.document(), generations, mail.password, TEMPLATES]
    return salted_hmac(_SALT, json.dumps(parts, sort_keys=True), algorithm="sha256").hexdigest()


def with_secrets(config: AlertmanagerConfig) -> AlertmanagerConfig:
    """Return the configuration with the secrets of the vault. A receiver whose secret cannot be
    decrypted is left out.
    """
    stored = selectors.stored_secrets()
    receivers = []
    for receiver in config.receivers:
        secrets = {name: stored.get((receiver.name, name), "") for name in receiver.secrets}
        if all(secrets.values()):
            receivers.append(replace(receiver, values={**receiver.values, **secrets}))
    names = {receiver.name for receiver in receivers}
    routes = [route for route in config.routes if route.receiver in names]
    return replace(config, receivers=receivers, routes=routes)


def _load(path: Path, config: AlertmanagerConfig, digest: str) -> None:
    manager = api_client.own_alertmanager()
    before = path.read_text() if path.is_file() else ""
    templates = path.with_name("emberline.tmpl")
    whole = with_secrets(config)
    write_private(templates, TEMPLATES)
    text = _HEAD + yaml_reader.render(whole.document(str(templates)), allow_unicode=True)
    write_private(path, text)
    if manager is None:
        return
    try:
        status = manager.exchange("POST", "/-/reload").status
    except NoReplyError as error:
        text = f"Alertmanager does not respond; it loads the file at its next start. {error}"
        _record(ConfigState.WAITING, digest, text)
        return
    if status == 200:
        loaded = {receiver.name for receiver in whole.receivers}
        lost = sorted({receiver.name for receiver in config.receivers} - loaded)
        unread = f"Secrets of {', '.join(lost)} cannot be decrypted. Enter them again."
        _record(ConfigState.LOADED, digest, unread if lost else "")
        return
    if before:
        write_private(path, before)
    text = "Alertmanager rejected the configuration and keeps the previous one."
    _record(ConfigState.REFUSED, digest, text)


def _amtool_fault(config: AlertmanagerConfig) -> str:
    """Return amtool's error, "" if there is none or no amtool. Secrets are replaced before."""
    path = settings.EMBERLINE.alertmanager_file
    tool = find_amtool(Layout(settings.EMBERLINE.var))
    if tool is None or path is None:
        return ""
    receivers = [
        replace(
            receiver,
            values={
                **receiver.values,
                **dict.fromkeys(receiver.secrets, "https://example.org/secret"),
            },
        )
        for receiver in config.receivers
    ]
    masked = replace(
        config,
        receivers=receivers,
        mail=replace(config.mail, password="secret"),  # noqa: S106
    )
    draft = path.with_suffix(".draft")
    write_private(draft, yaml_reader.render(masked.document()))
    try:
        done = subprocess.run(
            [tool, "check-config", str(draft)], capture_output=True, text=True, timeout=_CHECK_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("amtool failed, configuration not checked: %s", type(error).__name__)
        return ""
    finally:
        draft.unlink(missing_ok=True)
    output = (done.stdout + done.stderr).replace(str(draft), "the configuration")
    return "" if done.returncode == 0 else f"amtool: {output.strip()[-800:]}"


def _record(state: ConfigState, digest: str, message: str) -> None:
    fields = {"state": state, "digest": digest, "message": message}
    ConfigFile.objects.update_or_create(pk=1, defaults={**fields, "at": timezone.now()})
    if message:
        log.warning("Alertmanager configuration: %s", message)
