"""`emberline user|team|token ...` and `audit`: users, teams, API tokens and the audit log.

Passwords and tokens are printed alone, so that they can be piped, and only once. `audit verify`
exits with 1 if a row was changed. `verify`, `prune` and `reseal` run on the console's own machine.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from console.commandline import output
from console.commandline.context import USAGE, CommandContext, CommandError
from console.commandline.input import confirm, find_row
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


def create_user(context: CommandContext) -> str:
    data = {name: context.options[name] for name in ("username", "role") if context.options[name]}
    made = context.client.post("users", data=data, once=True)
    context.report(f"User {made['username']} ({made['role']}) created. Password (shown once):")
    return str(made["password"])


def reset_password(context: CommandContext) -> str:
    password = context.client.post("users", context.options["username"], "password")
    context.report(
        f"Ended {output.count(password['sessions_ended'], 'session')}, revoked "
        f"{output.count(password['tokens_revoked'], 'API token')}."
    )  # only the password goes to standard output
    return str(password["password"])


_USERS = Table(
    ("USERNAME", "ROLE", "ACTIVE", "TEAMS", "TOKENS", "LAST LOGIN"), _user, "No user matches."
)


def add_users(rooms: Verbs) -> None:
    verbs = rooms.group("user", "manage users and roles")
    verb = verbs.verb("list", "list users", call="GET users/", show=_USERS)
    verb.add("--role", choices=_ROLES, default="", help="filter by platform role")
    verb.add("--team", default="", help="filter by team slug")
    verbs.verb(
        "get",
        "show a user",
        "username",
        call="GET users/{username}/",
        show=lambda found: _USERS.text([found]),
    )
    verb = verbs.verb(
        "create", "create a user; prints only the password, once", "username", call=create_user
    )
    verb.add("--role", choices=_ROLES, default="", help="platform role (member)")
    verb = verbs.verb(
        "role",
        "change the platform role",
        "username",
        call="PATCH users/{username}/",
        show="User {username} has role {role}.",
    )
    verb.add("role", choices=_ROLES)
    verbs.verb(
        "activate",
        "allow a user to log in again",
        "username",
        call="PATCH users/{username}/",
        sends={"active": True},
        show="User {username} can log in again.",
    )
    verb = verbs.verb(
        "deactivate",
        "block the login, end sessions and revoke tokens",
        "username",
        call="PATCH users/{username}/",
        sends={"active": False},
        show="{username} deactivated: all sessions ended, API tokens revoked.",
    )
    verb.ask_first("Deactivating {username} ends all sessions and revokes all API tokens.")
    verb = verbs.verb(
        "reset-password",
        "print a new password once; ends sessions and revokes tokens",
        "username",
        call=reset_password,
    )
    verb.ask_first("A new password for {username} ends all sessions and revokes all API tokens.")


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


def get_team(context: CommandContext) -> dict[str, Any]:
    slug = context.options["slug"]
    team = context.client.get("teams", slug)
    return {**team, "members": list(context.client.pages("teams", slug, "members"))}


def _format_team(found: dict[str, Any]) -> str:
    return f"{_TEAMS.text([found])}\n\n{_MEMBERS.text(found['members'])}"


def create_team(context: CommandContext) -> Any:
    slug = context.options["slug"]
    data = _facts(context) | ({"slug": slug} if slug else {})
    return context.client.post("teams", data=data, once=True)


def update_team(context: CommandContext) -> Any:
    return context.client.patch("teams", context.options["slug"], data=_facts(context))


def _facts(context: CommandContext) -> dict[str, Any]:
    fields = context.given("description", "namespaces", "grants")
    if context.options["title"] is not None:
        fields["name"] = context.options["title"]
    if "grants" in fields:
        fields["grants"] = [grant for grant in fields["grants"] if grant != _NO_GRANT]
    return fields


_NO_GRANT = "none"


def _add_facts(verb: Verb) -> None:
    verb.add("--description", default=None, help="description")
    verb.add(
        "--namespace",
        action="append",
        dest="namespaces",
        default=None,
        help="allowed cluster namespace, repeatable (any)",
    )
    verb.add(
        "--grant",
        action="append",
        dest="grants",
        choices=(*Grant, _NO_GRANT),
        default=None,
        help="extra right of its endpoints, repeatable; replaces the current grants; "
        f"{_NO_GRANT}: remove all",
    )


def add_teams(rooms: Verbs) -> None:
    verbs, member = rooms.group("team", "manage teams"), "teams/{slug}/members/{username}/"
    verbs.verb("list", "list teams", call="GET teams/", show=_TEAMS)
    verbs.verb("get", "show a team with its members", "slug", call=get_team, show=_format_team)
    verb = verbs.verb(
        "create",
        "create a team",
        "title",
        call=create_team,
        show="Team {slug} created. Add a member: emberline team add {slug} USERNAME ROLE",
    )
    verb.add("--slug", default="", help="identifier in URLs, fixed (derived from the name)")
    _add_facts(verb)
    verb = verbs.verb(
        "update", "change the given fields", "slug", call=update_team, show="Team {slug} changed."
    )
    verb.add("--name", dest="title", default=None, help="display name")
    _add_facts(verb)
    verb = verbs.verb(
        "delete",
        "delete a team that owns no endpoint",
        "slug",
        call="DELETE teams/{slug}/",
        show="Team {slug} deleted. API tokens limited to it are revoked.",
    )
    verb.ask_first("Deleting team {slug} removes its members and revokes API tokens limited to it.")
    verb = verbs.verb(
        "add",
        "add a member or change their role",
        "slug",
        "username",
        call=f"PUT {member}",
        show="{username} is {role} in team {slug}.",
    )
    verb.add("role", choices=_TEAM_ROLES)
    verb = verbs.verb(
        "remove",
        "remove a member",
        "slug",
        "username",
        call=f"DELETE {member}",
        show="{username} removed from team {slug}.",
    )
    verb.ask_first("Removing {username} from team {slug} ends access to the team's endpoints.")


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


def create_token(context: CommandContext) -> str:
    """Print only the token, so that it can be piped into a file."""
    options = context.options
    fields = {"name": options["label"], "role": options["role"], "days": options["days"]}
    fields |= {name: options[name] for name in ("team", "user") if options[name]}
    return str(context.client.post("tokens", data=fields, once=True)["token"])


def revoke_token(context: CommandContext) -> str:
    rows, token_id = context.client.pages("tokens"), context.options["id"]
    token = find_row(rows, token_id, "token", "emberline token list")
    text = f"Revoking API token {token['name']} cannot be undone; clients that use it get 401."
    confirm(context, token["name"], text)
    context.client.delete("tokens", token["id"])
    return f"Token {token['name']} revoked."


_TOKENS = Table(
    ("ID", "USER", "NAME", "PREFIX", "ROLE", "TEAM", "EXPIRES", "LAST USED"),
    _token,
    "No API tokens. Create one: emberline token create NAME --role ROLE",
    names=False,
)


def add_tokens(rooms: Verbs) -> None:
    verbs = rooms.group("token", "manage API tokens")
    text = "list your API tokens (admins: all)"
    verb = verbs.verb("list", text, call="GET tokens/", show=_TOKENS)
    verb.add("--user", default="", help="filter by user")
    verb.add("--team", default="", help="filter by team slug")
    verb = verbs.verb(
        "create", "create an API token; prints only the token, once", "label", call=create_token
    )
    verb.add("--role", choices=_TEAM_ROLES, required=True, help="maximum role")
    verb.add("--days", type=int, help="days until it expires (never)")
    verb.add("--team", default="", help="limit to this team (slug)")
    verb.add(
        "--user",
        default="",
        help="owner; required on the console's machine, and available only there",
    )
    verb = verbs.verb(
        "revoke",
        "revoke an API token by name or ID, effective immediately",
        "id",
        call=revoke_token,
    )
    verb.ask_first()


_AUDIT_LOSSES = {
    "prune": "Pruning deletes all audit log entries before {before}.",
    "reseal": "Resealing accepts the current rows: earlier changes to them stay undetected.",
}


def audit(context: CommandContext) -> Any:
    verb = context.options["do"]
    for name in {*_FILTERS, "head", "before"}.difference(_OPTIONS[verb]):
        if context.options[name]:
            raise CommandError(f"audit {verb} has no option --{name}.", USAGE)
    if verb != "list":
        if context.here is None:
            text = f"audit {verb} runs on the console's machine only."
            raise CommandError(text, USAGE)
        if verb in _AUDIT_LOSSES:
            confirm(context, verb, _AUDIT_LOSSES[verb].format_map(context.options))
        return context.here.audit(verb, "".join(context.options[name] for name in _OPTIONS[verb]))
    filters = {name: context.options[name] for name in _FILTERS}
    rows = context.client.pages("audit", **filters)
    latest = list(islice(rows, max(context.options["limit"], 0)))
    return _ENTRIES.format(reversed(latest), context.options)


def _entry(row: dict[str, Any]) -> tuple[str, ...]:
    changes = "; ".join(f"{field}: {_pair(pair)}" for field, pair in sorted(row["changes"].items()))
    excerpt = changes if len(changes) <= 100 else f"{changes[:99]}…"
    return (
        output.format_time(row["at"]),
        row["actor"],
        row["verb"],
        row["target"],
        excerpt,
        row.get("note", ""),
    )


def _pair(pair: Any) -> str:
    if isinstance(pair, list) and len(pair) == 2:
        return f"{output.truncate(pair[0], 30)} -> {output.truncate(pair[1], 30)}"
    return output.truncate(pair, 30)


_ENTRIES = Table(
    ("TIME", "ACTOR", "ACTION", "TARGET", "CHANGES", "NOTE"),
    _entry,
    "No matching audit log entries.",
    names=False,
)
_FILTERS = {
    "actor": "filter by actor, full name",
    "verb": "filter by action prefix",
    "target": "filter by target prefix, for example endpoint/demo",
    "team": "filter by team slug",
    "since": "from this time: 2026-01-31T12:00:00Z",
    "until": "before this time",
}
_OPTIONS = {"list": (*_FILTERS,), "verify": ("head",), "prune": ("before",), "reseal": ()}


def add_audit(rooms: Verbs) -> None:
    verb = rooms.verb(
        "audit", "list the audit log, latest last, or verify it", call=audit, form=OUTPUT
    )
    verb.add(
        "do",
        nargs="?",
        default="list",
        choices=("list", "verify", "prune", "reseal"),
        help="list (default); verify: check all seals; prune: delete old rows; reseal: accept the "
        "current rows",
    )
    verb.add("--head", default="", help="verify: head printed by an earlier run")
    verb.add("--before", default="", help="prune: delete rows before this day, 2026-01-31")
    for name, text in _FILTERS.items():
        verb.add(f"--{name}", default="", help=text)
    verb.add("--limit", type=int, default=50, help="number of latest entries (50)")
    verb.ask_first()
