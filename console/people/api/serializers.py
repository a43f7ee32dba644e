"""Request and response bodies of users, teams and tokens."""

from __future__ import annotations

from typing import Any, ClassVar

from rest_framework import serializers

from console.accounts.models import (
    ApiToken,
    Membership,
    MembershipSource,
    Role,
    Team,
    TeamRole,
    User,
)
from console.core.grants import LABELS
from console.people.team_actions import FIELDS as TEAM_FIELDS

_ROLE = "Console role; member: team roles only."


class UserTeamSerializer(serializers.ModelSerializer[Membership]):
    team = serializers.CharField(source="team.slug")
    # One enum name for these choices in the OpenAPI document.
    role = serializers.ChoiceField(choices=TeamRole.choices)
    said_by = serializers.ChoiceField(
        source="source",
        choices=MembershipSource.choices,
        help_text="hand: added manually; oidc: single sign-on.",
    )

    class Meta:
        model = Membership
        fields = ("team", "role", "said_by")
        read_only_fields = fields


class UserSerializer(serializers.ModelSerializer[User]):
    email = serializers.CharField(allow_blank=True, help_text='"" if none was given.')
    role = serializers.ChoiceField(choices=Role.choices, help_text=_ROLE)
    active = serializers.BooleanField(source="is_active")
    teams = UserTeamSerializer(source="memberships", many=True)
    tokens = serializers.IntegerField(source="token_count", help_text="Number of API tokens.")

    class Meta:
        model = User
        fields: tuple[str, ...] = (
            "username",
            "email",
            "role",
            "active",
            "teams",
            "tokens",
            "last_login",
        )
        read_only_fields: tuple[str, ...] = fields


class NewUserSerializer(serializers.Serializer[Any]):
    username = serializers.CharField(max_length=150)
    role = serializers.ChoiceField(choices=Role.choices, default=Role.MEMBER, help_text=_ROLE)


class MadeUserSerializer(UserSerializer):
    password = serializers.CharField(help_text="Returned in this response only.")

    class Meta(UserSerializer.Meta):
        fields = (*UserSerializer.Meta.fields, "password")
        read_only_fields = fields


class UserChangeSerializer(serializers.Serializer[Any]):
    """All fields are optional."""

    role = serializers.ChoiceField(choices=Role.choices, required=False, help_text=_ROLE)
    active = serializers.BooleanField(
        required=False, help_text="false: sessions ended, tokens revoked, login rejected."
    )


class PasswordSerializer(serializers.Serializer[Any]):
    password = serializers.CharField(help_text="Returned in this response only.")
    sessions_ended = serializers.IntegerField(help_text="Number of ended sessions.")
    tokens_revoked = serializers.IntegerField(help_text="Number of revoked API tokens.")


class MemberSerializer(serializers.ModelSerializer[Membership]):
    username = serializers.CharField(source="user.username")
    role = serializers.ChoiceField(choices=TeamRole.choices)
    said_by = serializers.ChoiceField(source="source", choices=MembershipSource.choices)
    since = serializers.DateTimeField(source="created_at")

    class Meta:
        model = Membership
        fields = ("username", "role", "said_by", "since")
        read_only_fields = fields


class RoleSerializer(serializers.Serializer[Any]):
    role = serializers.ChoiceField(choices=TeamRole.choices)


class TeamWriteSerializer(serializers.ModelSerializer[Team]):
    namespaces = serializers.ListField(
        child=serializers.CharField(), required=False, help_text=TEAM_FIELDS.help("namespaces")
    )
    grants = serializers.ListField(
        child=serializers.ChoiceField(choices=list(LABELS.items())),
        required=False,
        help_text=TEAM_FIELDS.help("grants"),
    )

    class Meta:
        model = Team
        fields = ("name", "description", "namespaces", "grants")
        extra_kwargs: ClassVar = {"name": {"required": False}}


class NewTeamSerializer(TeamWriteSerializer):
    class Meta:
        model = Team
        fields = TEAM_FIELDS.names
        extra_kwargs: ClassVar = {"slug": {"required": False}}


class TeamSerializer(serializers.ModelSerializer[Team]):
    people = serializers.IntegerField(help_text="Number of members.")
    namespaces = serializers.ListField(child=serializers.CharField())
    grants = serializers.ListField(
        child=serializers.ChoiceField(choices=list(LABELS.items())),
        help_text=TEAM_FIELDS.help("grants"),
    )

    class Meta:
        model = Team
        fields = ("slug", "name", "description", "namespaces", "grants", "people", "created_at")
        read_only_fields = fields


class TokenSerializer(serializers.ModelSerializer[ApiToken]):
    user = serializers.CharField(source="user.username")
    role = serializers.ChoiceField(choices=TeamRole.choices, help_text="Highest role of the token.")
    team = serializers.CharField(
        source="team.slug",
        allow_null=True,
        help_text="Slug of the only allowed team; null: all teams.",
    )

    class Meta:
        model = ApiToken
        fields: tuple[str, ...] = (
            "id",
            "user",
            "name",
            "prefix",
            "role",
            "team",
            "created_at",
            "expires_at",
            "last_used_at",
        )
        read_only_fields: tuple[str, ...] = fields


class NewTokenSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=60)
    role = serializers.ChoiceField(choices=TeamRole.choices)
    team = serializers.CharField(
        required=False, allow_null=True, help_text="Slug of the only allowed team."
    )
    days = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=3650,
        help_text="Days until expiry; omitted or null: no expiry.",
    )
    user = serializers.CharField(
        required=False, help_text="Owner; only commands on the server may set another user."
    )


class MadeTokenSerializer(TokenSerializer):
    token = serializers.CharField(help_text="Clear text, returned in this response only.")

    class Meta(TokenSerializer.Meta):
        fields = (*TokenSerializer.Meta.fields, "token")
        read_only_fields = fields
