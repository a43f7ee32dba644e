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
    asked.say(f"{made['username']} ({made['role']}) is added. Their password, once:")
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
    ("USERNAME", "ROLE", "ACTIVE", "TEAMS", "TOKENS", "LAST LOGIN"), _user, "Nobody is so."
)


def add_users(rooms: Verbs) -> None:
    verbs = rooms.group("user", "people and what they may", client="users")
    verb = verbs.verb("list", "everybody", show=_USERS)
    verb.add("--role", choices=_ROLES, default="", help="with this role everywhere")
    verb.add("--team", default="", help="in this team, by its slug")
    verbs.verb("get", "one person", "username", show=lambda found: _USERS.text([found]))
    verb = verbs.verb("create", "prints the password, once and alone", "username", call=create_user)
    verb.add("--role", choices=_ROLES, default="", help="held everywhere (member)")
    verb = verbs.verb(
        "role",
        "another role, held everywhere",
        "username",
        call=lambda asked: change_user(asked, role=asked.options["role"]),
        show="{username} is {role} now.",
    )
    verb.add("role", choices=_ROLES)
    verbs.verb(
        "activate",
        "let in again",
        "username",
        call=lambda asked: change_user(asked, active=True),
        show="{username} may log in again.",
    )
    verbs.verb(
        "deactivate",
        "every session ends, every token is revoked",
        "username",
        call=lambda asked: change_user(asked, active=False),
        show="{username} deactivated: all sessions ended, API tokens revoked.",
    )
    verbs.verb(
        "reset-password",
        "prints a new password, once and alone; sessions end, tokens are revoked",
        "username",
        call=reset_password,
    )


def _team(one: dict[str, Any]) -> tuple[str, ...]:
    spaces = ", ".join(one["namespaces"]) or "anywhere"
    grants = ", ".join(one["grants"]) or "-"
    return one["slug"], one["name"], str(one["people"]), spaces, grants, one["description"]


_TEAMS = Table(
    ("SLUG", "NAME", "PEOPLE", "NAMESPACES", "GRANTS", "DESCRIPTION"),
    _team,
    "There is no team. Make one: emberline team create NAME",
)
_MEMBERS = Table(
    ("USERNAME", "ROLE", "SAID BY", "SINCE"),
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
    verb.add("--description", default=None, help="for people")
    verb.add(
        "--namespace",
        action="append",
        dest="namespaces",
        default=None,
        help="where on clusters its endpoints may be; several times; none: anywhere",
    )
    verb.add(
        "--grant",
        action="append",
        dest="grants",
        choices=(*Grant, _NO_GRANT),
        default=None,
        help="what its endpoints may have beyond plain pods; several times, in place of the "
        f"present ones; {_NO_GRANT}: take all away",
    )


def add_teams(rooms: Verbs) -> None:
    verbs = rooms.group("team", "whose endpoints are whose", client="teams")
    verbs.verb("list", "teams one may see", show=_TEAMS)
    verbs.verb("get", "one team with its people", "slug", call=get_team, show=_format_team)
    verb = verbs.verb(
        "create",
        "a new team",
        "title",
        call=create_team,
        show="Team {slug} is made. Take somebody in: emberline team add {slug} NAME ROLE",
    )
    verb.add("--slug", default="", help="stands in addresses and stays; from the name")
    _add_facts(verb)
    verb = verbs.verb(
        "update",
        "change the given",
        "slug",
        call=lambda asked: asked.client.teams.change(asked.options["slug"], _facts(asked)),
        show="Team {slug} is changed.",
    )
    verb.add("--name", dest="title", default=None, help="as people read it")
    _add_facts(verb)
    verbs.verb(
        "delete",
        "refused while it owns an endpoint",
        "slug",
        show="Team {slug} is deleted. Tokens for it alone have ended.",
    )
    verb = verbs.verb(
        "add",
        "take somebody in, or change their role",
        "slug",
        "username",
        call="set_member",
        show="{username} is {role} of team {slug}.",
    )
    verb.add("role", choices=_TEAM_ROLES)
    verbs.verb(
        "remove",
        "send somebody away",
        "slug",
        "username",
        call="remove_member",
        show="{username} is in team {slug} no longer.",
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
    return f"Token {token['name']} is revoked."


_TOKENS = Table(
    ("ID", "USER", "NAME", "BEGINS WITH", "ROLE", "TEAM", "EXPIRES", "LAST USED"),
    _token,
    "There are no tokens.",
    names=False,
)


def add_tokens(rooms: Verbs) -> None:
    verbs = rooms.group("token", "API tokens of programs", client="tokens")
    verb = verbs.verb("list", "one's own; an admin's list is everybody's", show=_TOKENS)
    verb.add("--user", default="", help="of this person")
    verb.add("--team", default="", help="for this team alone")
    verb = verbs.verb("create", "prints the token, once and alone", "label", call=create_token)
    verb.add("--role", choices=_TEAM_ROLES, required=True, help="at most this")
    verb.add("--days", type=int, help="until it expires; never if left out")
    verb.add("--team", default="", help="for this team alone, by its slug")
    verb.add(
        "--user",
        default="",
        help="whose; needed on the console's own machine, and allowed only there",
    )
    verbs.verb(
        "revoke",
        "programs that use it stop working at once; by its id or name",
        "id",
        call=revoke_token,
    )


def audit(asked: CommandContext) -> Any:
    verb = asked.options["verb"]
    if verb:
        if asked.here is None:
            text = f"audit {verb} runs on the console's own machine: run it there."
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
    ("WHEN", "WHO", "WHAT", "ON", "CHANGES", "NOTE"),
    _entry,
    "No audit log entry matches.",
    names=False,
)
_FILTERS = {
    "actor": "who, by the whole name",
    "verb": "what, from its beginning",
    "target": "on what, from its beginning: endpoint/demo",
    "team": "of this team, by its slug",
    "since": "from this moment on: 2026-01-31T12:00:00Z",
    "until": "before this moment",
}


def add_audit(rooms: Verbs) -> None:
    verb = rooms.verb("audit", "who did what, latest last; verify the log", call=audit, form=OUTPUT)
    verb.add(
        "verb",
        nargs="?",
        choices=("verify", "prune", "reseal"),
        help="verify: every seal; prune: delete old rows; reseal: accept the rows as they are",
    )
    verb.add("--head", default="", help="verify: the head an earlier run printed")
    verb.add("--before", default="", help="prune: rows older than this day, 2026-01-31")
    for name, text in _FILTERS.items():
        verb.add(f"--{name}", default="", help=text)
    verb.add("--limit", type=int, default=50, help="so many of the latest (50)")
