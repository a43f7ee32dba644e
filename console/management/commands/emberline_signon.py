"""`manage.py emberline_signon --secret acme < FILE`: store a provider's client secret.

Reads standard input: an argument appears in the process list and in shell history.
"""

from __future__ import annotations

import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from console.audit.record import record
from console.signon import oidc


class Command(BaseCommand):
    help = "Store (--secret) or delete (--forget) a provider's client secret in the vault."

    def add_arguments(self, parser: CommandParser) -> None:
        kind = parser.add_mutually_exclusive_group(required=True)
        kind.add_argument("--secret", metavar="PROVIDER", help="read from standard input")
        kind.add_argument("--forget", metavar="PROVIDER")

    def handle(self, *_args: Any, **options: Any) -> None:
        provider = options["secret"] or options["forget"]
        ids = [provider.id for provider in settings.OIDC_PROVIDERS]
        if options["forget"]:
            oidc.delete_secret(provider)
            record(None, "signon.secret.forget", f"signon/{provider}")
            self.stdout.write(f"No secret of {provider} is stored.")
            return
        if provider not in ids:
            raise CommandError(f"There is no provider {provider}; there are: {', '.join(ids)}.")
        secret = sys.stdin.read().strip()
        if not secret:
            raise CommandError("Standard input is empty; send the secret there.")
        oidc.store_secret(provider, secret)
        record(None, "signon.secret.keep", f"signon/{provider}")
        self.stdout.write(f"The secret of {provider} is stored encrypted.")
