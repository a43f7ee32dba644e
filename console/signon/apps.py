from __future__ import annotations

from django.apps import AppConfig


class SignonConfig(AppConfig):
    name = "console.signon"
    label = "signon"
    verbose_name = "Sign-on"

    def ready(self) -> None:
        from console.signon import confirmation, factors, flow  # noqa: F401  (flow connects signals)
        from console.signon.pages.settings import CARD
        from console.vault import key_rotation
        from console.web.shell import cards, navigation
        from console.web.shell.search import register_pages

        key_rotation.register(factors.SEALED)
        cards.register_card(CARD)
        navigation.register_item(
            navigation.NavItem("Single sign-on", "signon:settings", "login", 86, role="admin")
        )
        register_pages(navigation.NavItem("Security", "signon:security", "shield-lock", 0))
        confirmation.require_confirmation(
            "accounts:token-create",
            "accounts:people",
            "accounts:member-set",
            "accounts-api:user",
            "accounts-api:users",
            "accounts-api:user-password",
            "accounts-api:member",
            "accounts-api:tokens",
            "signon-api:user-factor",
            "accounts:person-role",
            "accounts:person-password",
            "signon:factor-reset",
            "mfa_activate_totp",
            "mfa_deactivate_totp",
            "mfa_add_webauthn",
            "mfa_remove_webauthn",
            "mfa_generate_recovery_codes",
            "signon:link",
            "signon:unlink",
        )
