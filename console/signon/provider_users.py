"""Map provider identities to users and update their rights at each sign-on.

Only the provider's subject identifies a user; matching names or e-mail addresses have no effect.
Manually assigned rights and the last admin are kept.
"""

from __future__ import annotations

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone

from console.accounts.models import Membership, MembershipSource, Role, Team, User
from console.accounts.permissions import forget_memberships
from console.audit.record import record
from console.people.token_actions import limit_tokens
from console.signon.core import configuration
from console.signon.core.configuration import Provider, Rights
from console.signon.flow import end_sessions, target
from console.signon.models import Identity
from console.signon.oidc import ProviderUser

_NO_RIGHTS = Rights("", {}, (), True)


class SignOnRefused(Exception):
    """Rejected sign-on; `reason` is for the audit log, the text for the user."""

    def __init__(self, reason: str, text: str, user: User | None = None) -> None:
        super().__init__(text)
        self.reason = reason
        self.user = user


def resolve_user(person: ProviderUser) -> User:
    """Return the user, created if needed, with the rights of their groups."""
    rights = configuration.rights_of(person.provider, person.claims)
    identity = _identity(person)
    if identity is None:
        user = _create_user(person, rights)
    else:
        user = identity.user
        if not user.is_active:
            raise SignOnRefused(
                "inactive", "Your account is deactivated. Contact an administrator.", user
            )
        if identity.leads:
            _apply_role(user, person.provider, rights)
    _update_teams(user, person.provider, rights)
    Identity.objects.filter(user=user, provider=person.provider.id, subject=person.subject).update(
        last_login_at=timezone.now(), groups=list(rights.groups), shown_as=_display_name(person)
    )
    return user


@transaction.atomic
def link_identity(user: User, person: ProviderUser) -> None:
    identity = _identity(person)
    if identity is not None:
        if identity.user_id == user.pk:
            return
        raise SignOnRefused("linked to another", "This account is linked to another user.", user)
    _update_identity(user, person, leads=False)
    record(user, "user.identity.link", target(user), {"provider": person.provider.id})


@transaction.atomic
def unlink_identity(user: User, identity: Identity, session: str = "") -> None:
    """Unlink; rights from its groups and all sessions except the row `session` end.

    Without the link no later sign-on could remove those rights.
    """
    others = user.identities.exclude(pk=identity.pk).exists()
    if not others and not user.has_usable_password():
        raise ValidationError(
            "This is your only login method. Ask an administrator for a password first."
        )
    ended = end_sessions(user, but=session)
    details = {"provider": identity.provider, "sessions_ended": ended}
    record(user, "user.identity.unlink", target(user), details)
    identity.delete()
    provider = next(
        (provider for provider in settings.OIDC_PROVIDERS if provider.id == identity.provider), None
    )
    if provider is not None:
        _update_teams(user, provider, _NO_RIGHTS)
        if identity.leads and provider.roles:
            _set_role(user, Role.MEMBER.value, provider)


def owns_identity(user: User, person: ProviderUser) -> bool:
    identity = _identity(person)
    return identity is not None and identity.user_id == user.pk


def _identity(person: ProviderUser) -> Identity | None:
    return (
        Identity.objects.select_related("user")
        .filter(provider=person.provider.id, issuer=person.provider.issuer, subject=person.subject)
        .first()
    )


def _create_user(person: ProviderUser, rights: Rights) -> User:
    provider = person.provider
    if not provider.new_people:
        text = (
            f"No user is linked to this account of {provider.name}. Ask an administrator for one."
        )
        raise SignOnRefused("unknown", text)
    if not rights.role:
        raise _no_group(provider)
    name = str(configuration.read_claim(person.claims, provider.username_claim) or "").strip()
    if User.objects.filter(username__iexact=name).exists():
        raise SignOnRefused(
            "name is taken",
            f"The user name “{name}” is already in use. If it is yours, log in with its"
            f" password and link {provider.name} on the Security page; else ask an administrator.",
        )
    user = User(username=name, role=rights.role)
    user.set_unusable_password()
    try:
        with transaction.atomic():
            user.full_clean(exclude=["password"])
            user.save()
            _update_identity(user, person, leads=True)
            record(
                None,
                "user.create",
                target(user),
                {"role": [None, user.role], "provider": provider.id},
            )
    except ValidationError:
        text = f"{provider.name} sent an unusable user name. Contact an administrator."
        raise SignOnRefused("name is unusable", text) from None
    except IntegrityError:
        raise SignOnRefused("two simultaneous logins", "Log in again.") from None
    return user


def _update_identity(user: User, person: ProviderUser, *, leads: bool) -> None:
    Identity.objects.create(
        user=user,
        provider=person.provider.id,
        issuer=person.provider.issuer,
        subject=person.subject,
        shown_as=_display_name(person),
        leads=leads,
    )


def _display_name(person: ProviderUser) -> str:
    name = configuration.read_claim(person.claims, person.provider.username_claim)
    return str(name or person.claims.get("email") or "")[:200]


def _no_group(provider: Provider, user: User | None = None) -> SignOnRefused:
    text = (
        f"None of your groups at {provider.name} has access to this console. Ask an administrator."
    )
    return SignOnRefused("no group", text, user)


def _apply_role(user: User, provider: Provider, rights: Rights) -> None:
    if not rights.role:
        _remove_access(user, provider)
        raise _no_group(provider, user)
    if provider.roles:  # otherwise admins set roles, and groups only map to teams
        _set_role(user, rights.role, provider)


@transaction.atomic
def _remove_access(user: User, provider: Provider) -> None:
    """End sessions and token rights of a user whose groups no longer grant a role."""
    _set_role(user, Role.MEMBER.value, provider)
    _update_teams(user, provider, _NO_RIGHTS)
    end_sessions(user)


@transaction.atomic
def _set_role(user: User, role: str, provider: Provider) -> None:
    if user.role == role:
        return
    details = {"role": [user.role, role], "provider": provider.id}
    if user.role == Role.ADMIN and not _has_other_admins(user):
        record(None, "user.role.kept", target(user), {**details, "reason": "the only admin"})
        return
    user.role = role
    user.save(update_fields=["role"])
    record(None, "user.role", target(user), details)
    limit_tokens(None, user, f"{provider.name} lowered the role")


def _has_other_admins(user: User) -> bool:
    """Return whether other admins exist; locks their rows against concurrent removal."""
    admins = User.objects.select_for_update(no_key=True).filter(role=Role.ADMIN, is_active=True)
    return any(admin.pk != user.pk for admin in admins)


@transaction.atomic
def _update_teams(user: User, provider: Provider, rights: Rights) -> None:
    """Update memberships from this provider only."""
    held = {m.team.slug: m for m in user.memberships.select_related("team")}
    mapped = {slug for provider in settings.OIDC_PROVIDERS for slug in provider.teams}
    orphaned = {slug for slug in held if slug not in mapped}
    for team in Team.objects.filter(slug__in={*provider.teams, *orphaned}):
        slug = team.slug
        has, role = held.get(slug), rights.teams.get(slug, "")
        if has is not None and has.source != MembershipSource.OIDC:
            continue
        before = has.role if has is not None else None
        if before == (role or None):
            continue
        if not role:
            Membership.objects.filter(team=team, user=user).delete()
        else:
            defaults = {"role": role, "source": MembershipSource.OIDC}
            Membership.objects.update_or_create(team=team, user=user, defaults=defaults)
        details = {"role": [before, role or None], "team": slug, "provider": provider.id}
        record(None, "team.member", target(user), details, of=team)
        limit_tokens(None, user, f"{provider.name} lowered the role in {team.name}")
    forget_memberships(user)
