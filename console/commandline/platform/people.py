"""`emberline user|team|token ...` and `audit`: users, teams, API tokens and the audit log.

Passwords and tokens are printed alone, so that they can be piped, and only once. `audit verify`
exits with 1 if a row was changed. `verify`, `prune` and `reseal` run on the console's own machine.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from console.commandline import output
from console.commandline.context import USAGE, CommandContext, CommandError
from console.commandline.input import find_row
from console.commandline.verbs import OUTPUT, Table, Verb, Verbs
from console.core.grants import Grant

_ROLES = ("member", "viewer", "operator", "admin")
_TEAM_ROLES = _ROLES[1:]


def _user(one: dict[str, Any]) -> tuple[str, ...]:
    teams = ", ".join(f"{each['team']}:{each['role']}" for each in one["teams"])
    return (
        one["username"],
        one["role"],
        "yes" if one["active"] else "no",
        teams or "-",
        str(one["tokens"]),
        output.format_time(one["last_login"]) or "never",
    )


def create_user(asked: CommandContext) -> str:
    made = asked.client.users.create(asked.options["username"], asked.options["role"])
    asked.say(f"{made['username']} ({made['role']}) created. Password (shown once):")
    return str(made["password"])


def change_user(asked: CommandContext, **facts: Any) -> dict[str, Any]:
    return asked.client.users.change(asked.options["username"], facts)


def reset_password(asked: CommandContext) -> str:
    found = asked.client.users.new_password(asked.options["username"])
    asked.say(
        f"Ended: {found['sessions_ended']} sessions, {found['tokens_revoked']} API tokens."
    )  # only the password goes to standard output
    return str(found["password"])


_USERS = Table(
    ("USERNAME", "ROLE", "ACTIVE", "TEAMS", "TOKENS", "LAST LOGIN"), _user, "No matching users."
)


def add_users(rooms: Verbs) -> None:
    verbs = rooms.group("user", "users and roles", client="users")
    verb = verbs.verb("list", "list users", show=_USERS)
    verb.add("--role", choices=_ROLES, default="", help="console role")
    verb.add("--team", default="", help="slug of a team")
    verbs.verb("get", "show a user", "username", show=lambda found: _USERS.text([found]))
    verb = verbs.verb(
        "create", "create a user; prints the password once", "username", call=create_user
    )
    verb.add("--role", choices=_ROLES, default="", help="console role (default: member)")
    verb = verbs.verb(
        "role",
        "set the console role",
        "username",
        call=lambda asked: change_user(asked, role=asked.options["role"]),
        show="{username} now has the role {role}.",
    )
    verb.add("role", choices=_ROLES)
    verbs.verb(
        "activate",
        "reactivate a user",
        "username",
        call=lambda asked: change_user(asked, active=True),
        show="{username} activated.",
    )
    verbs.verb(
        "deactivate",
        "deactivate a user; ends all sessions, revokes all tokens",
        "username",
        call=lambda asked: change_user(asked, active=False),
        show="{username} deactivated: all sessions ended, API tokens revoked.",
    )
    verbs.verb(
        "reset-password",
        "reset the password; prints it once, ends sessions, revokes tokens",
        "username",
        call=reset_password,
    )


def _team(one: dict[str, Any]) -> tuple[str, ...]:
    spaces = ", ".join(one["namespaces"]) or "any"
    grants = ", ".join(one["grants"]) or "-"
    return one["slug"], one["name"], str(one["people"]), spaces, grants, one["description"]


_TEAMS = Table(
    ("SLUG", "NAME", "MEMBERS", "NAMESPACES", "GRANTS", "DESCRIPTION"),
    _team,
    "No teams. Create one: emberline team create NAME",
)
_MEMBERS = Table(
    ("USERNAME", "ROLE", "SOURCE", "SINCE"),
    lambda one: (one["username"], one["role"], one["said_by"], output.format_time(one["since"])),
)


def get_team(asked: CommandContext) -> dict[str, Any]:
    slug = asked.options["slug"]
    found = asked.client.teams.get(slug)
    return {**found, "members": list(asked.client.teams.members(slug))}


def _format_team(found: dict[str, Any]) -> str:
    return f"{_TEAMS.text([found])}\n\n{_MEMBERS.text(found['members'])}"


def create_team(asked: CommandContext) -> dict[str, Any]:
    slug = asked.options["slug"]
    return asked.client.teams.create(_facts(asked) | ({"slug": slug} if slug else {}))


def _facts(asked: CommandContext) -> dict[str, Any]:
    facts = asked.given("description", "namespaces", "grants")
    if asked.options["title"] is not None:
        facts["name"] = asked.options["title"]
    if "grants" in facts:
        facts["grants"] = [one for one in facts["grants"] if one != _NO_GRANT]
    return facts


_NO_GRANT = "none"


def _add_facts(verb: Verb) -> None:
    verb.add("--description", default=None, help="description")
    verb.add(
        "--namespace",
        action="append",
        dest="namespaces",
        default=None,
        help="allowed namespace of its endpoints; repeatable; default: any",
    )
    verb.add(
        "--grant",
        action="append",
        dest="grants",
        choices=(*Grant, _NO_GRANT),
        default=None,
        help="permission of its endpoints beyond restricted pods; repeatable, replaces the "
        f"current ones; {_NO_GRANT}: remove all",
    )


def add_teams(rooms: Verbs) -> None:
    verbs = rooms.group("team", "teams, members and grants", client="teams")
    verbs.verb("list", "list visible teams", show=_TEAMS)
    verbs.verb("get", "show a team with its members", "slug", call=get_team, show=_format_team)
    verb = verbs.verb(
        "create",
        "create a team",
        "title",
        call=create_team,
        show="Team {slug} created. Add members: emberline team add {slug} NAME ROLE",
    )
    verb.add("--slug", default="", help="part of URLs, immutable (default: from the name)")
    _add_facts(verb)
    verb = verbs.verb(
        "update",
        "change the given fields",
        "slug",
        call=lambda asked: asked.client.teams.change(asked.options["slug"], _facts(asked)),
        show="Team {slug} changed.",
    )
    verb.add("--name", dest="title", default=None, help="display name")
    _add_facts(verb)
    verbs.verb(
        "delete",
        "delete a team; rejected while it owns an endpoint",
        "slug",
        show="Team {slug} deleted; tokens limited to it revoked.",
    )
    verb = verbs.verb(
        "add",
        "add a member or change the role",
        "slug",
        "username",
        call="set_member",
        show="{username} now has the role {role} in team {slug}.",
    )
    verb.add("role", choices=_TEAM_ROLES)
    verbs.verb(
        "remove",
        "remove a member",
        "slug",
        "username",
        call="remove_member",
        show="{username} removed from team {slug}.",
    )


def _token(one: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(one["id"]),
        one["user"],
        one["name"],
        f"{one['prefix']}…",
        one["role"],
        one["team"] or "all",
        output.format_time(one["expires_at"]) or "never",
        output.format_time(one["last_used_at"]) or "-",
    )


def create_token(asked: CommandContext) -> str:
    """Print only the token, so that it can be piped into a file."""
    options = asked.options
    facts = {"name": options["label"], "role": options["role"], "days": options["days"]}
    facts |= {name: options[name] for name in ("team", "user") if options[name]}
    return str(asked.client.tokens.create(facts)["token"])


def revoke_token(asked: CommandContext) -> str:
    rows, given = asked.client.tokens.list(), asked.options["id"]
    token = find_row(rows, given, "token", "emberline token list")
    asked.client.tokens.revoke(str(token["id"]))
    return f"Token {token['name']} revoked."


_TOKENS = Table(
    ("ID", "USER", "NAME", "PREFIX", "ROLE", "TEAM", "EXPIRES", "LAST USED"),
    _token,
    "No tokens.",
    names=False,
)


def add_tokens(rooms: Verbs) -> None:
    verbs = rooms.group("token", "API tokens", client="tokens")
    verb = verbs.verb("list", "list own tokens; admins: all tokens", show=_TOKENS)
    verb.add("--user", default="", help="user name")
    verb.add("--team", default="", help="slug of the only allowed team")
    verb = verbs.verb("create", "create a token; prints it once", "label", call=create_token)
    verb.add("--role", choices=_TEAM_ROLES, required=True, help="highest role of the token")
    verb.add("--days", type=int, help="days until expiry (default: no expiry)")
    verb.add("--team", default="", help="slug of the only allowed team")
    verb.add(
        "--user",
        default="",
        help="owner; required on the console host, and allowed only there",
    )
    verbs.verb(
        "revoke",
        "revoke a token by ID or name; clients lose access immediately",
        "id",
        call=revoke_token,
    )


def audit(asked: CommandContext) -> Any:
    verb = asked.options["verb"]
    if verb:
        if asked.here is None:
            text = f"audit {verb} is available on the console host only: run it there."
            raise CommandError(text, USAGE)
        return asked.here.audit(verb, asked.options["head" if verb == "verify" else "before"])
    rows = asked.client.audit.list(**{name: asked.options[name] for name in _FILTERS})
    latest = list(islice(rows, max(asked.options["limit"], 0)))
    return _ENTRIES.format(reversed(latest), asked.options)


def _entry(row: dict[str, Any]) -> tuple[str, ...]:
    changes = "; ".join(f"{field}: {_pair(pair)}" for field, pair in sorted(row["changes"].items()))
    shown = changes if len(changes) <= 100 else f"{changes[:99]}…"
    return (
        output.format_time(row["at"]),
        row["actor"],
        row["verb"],
        row["target"],
        shown,
        row.get("note", ""),
    )


def _pair(pair: Any) -> str:
    if isinstance(pair, list) and len(pair) == 2:
        return f"{output.truncate(pair[0], 30)} -> {output.truncate(pair[1], 30)}"
    return output.truncate(pair, 30)


_ENTRIES = Table(
    ("TIME", "ACTOR", "ACTION", "OBJECT", "CHANGES", "NOTE"),
    _entry,
    "No matching audit log entries.",
    names=False,
)
_FILTERS = {
    "actor": "exact actor name",
    "verb": "prefix of the action",
    "target": "prefix of the object, such as endpoint/demo",
    "team": "slug of the owning team",
    "since": "start time, inclusive: 2026-01-31T12:00:00Z",
    "until": "end time, exclusive",
}


def add_audit(rooms: Verbs) -> None:
    verb = rooms.verb(
        "audit",
        "list the audit log, newest last; verify, prune or reseal it",
        call=audit,
        form=OUTPUT,
    )
    verb.add(
        "verb",
        nargs="?",
        choices=("verify", "prune", "reseal"),
        help="verify: every seal; prune: delete old rows; reseal: accept the rows as they are",
    )
    verb.add("--head", default="", help="verify: head printed by an earlier run")
    verb.add("--before", default="", help="prune: rows older than this date, such as 2026-01-31")
    for name, text in _FILTERS.items():
        verb.add(f"--{name}", default="", help=text)
    verb.add("--limit", type=int, default=50, help="number of newest entries (default: 50)")
