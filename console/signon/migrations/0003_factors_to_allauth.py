from __future__ import annotations

import json
from typing import Any

from django.db import migrations

from console.vault import encryption

_PURPOSE = "signon/mfa"


def move_factors(apps: Any, _schema_editor: Any) -> None:
    """Move TOTP secrets and unused recovery codes to allauth, encrypted for its adapter.

    A factor that no key decrypts stays enabled and rejects every code, as before: dropping it would
    leave the account to its password.
    """
    authenticators = apps.get_model("mfa", "Authenticator").objects
    for factor in apps.get_model("signon", "Factor").objects.order_by("pk"):
        old = f"signon/factor/{factor.user_id}"
        try:
            secret = encryption.seal(encryption.unseal(factor.secret, old), _PURPOSE)
            codes = json.loads(encryption.unseal(factor.recovery, old))
        except encryption.Unreadable:
            secret, codes = factor.secret, []
        times = {"created_at": factor.created_at, "last_used_at": factor.last_used_at}
        data = {"secret": secret, "last_step": factor.last_step}
        authenticators.create(user_id=factor.user_id, type="totp", data=data, **times)
        sealed = [encryption.seal(code.replace("-", ""), _PURPOSE) for code in codes]
        data = {"migrated_codes": sealed, "viewed_at": factor.created_at.timestamp()}
        authenticators.create(user_id=factor.user_id, type="recovery_codes", data=data, **times)


class Migration(migrations.Migration):
    dependencies = [
        ("signon", "0002_sign_on_and_factors"),
        ("mfa", "0003_authenticator_type_uniq"),
    ]
    operations = [
        migrations.RunPython(move_factors, migrations.RunPython.noop),
        migrations.DeleteModel("Factor"),
    ]
