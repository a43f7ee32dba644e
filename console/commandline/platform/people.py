"""`emberline user|team|token ...`: users, teams and API tokens.

Passwords and tokens are printed alone, so that they can be piped, and only once.
"""

from __future__ import annotations

import argparse
from typing import Any

from console.commandline import input as commandline_input
from console.commandline import output
from console.commandline.context import CommandContext
from console.commandline.verbs import add_group, add_verb
from console.core.grants import Grant

ROLES = ("member", "viewer", "operator", "admin")
TEAM_ROLES = ROLES[1:]
_USERS = ("USERNAME", "ROLE", "ACTIVE", "TEAMS", "TOKENS", "LAST LOGIN")
NO_GRANT = "none"
_TEAMS = ("SLUG", "NAME", "PEOPLE", "NAMESPACES", "GRANTS", "DESCRIPTION")
_MEMBERS = ("USERNAME", "ROLE", "SAID BY", "SINCE")
_TOKENS = ("ID", "USER", "NAME", "BEGINS WITH", "ROLE", "TEAM", "EXPIRES", "LAST USED")


def add_to(rooms: Any) -> None:
    _add_users(add_group(rooms, "user", "people and what they may"))
    _add_teams(add_group(rooms, "team", "whose endpoints are whose"))
    _add_tokens(add_group(rooms, "token", "API tokens of programs"))


def _add_users(verbs: Any) -> None:
    listed = add_verb(verbs, "list", list_users, "everybody")
    listed.add_argument("--role", choices=ROLES, default="", help="with this role everywhere")
    listed.add_argument("--team", default="", help="in this team, by its slug")
    output.add_output(listed, names=True)
    output.add_output(add_verb(verbs, "get", get_user, "one person", "username"))
    made = add_verb(verbs, "create", create_user, "prints the password, once and alone", "username")
    made.add_argument("--role", choices=ROLES, default="", help="held everywhere (member)")
    add_verb(verbs, "role", set_role, "another role, held everywhere", "username").add_argument(
        "role", choices=ROLES
    )
    for word, text, active in (
        ("activate", "let in again", True),
        ("deactivate", "every session ends, every token is revoked", False),
    ):
        add_verb(verbs, word, set_active, text, "username").set_defaults(active=active)
    text = "prints a new password, once and alone; sessions end, tokens are revoked"
    add_verb(verbs, "reset-password", reset_password, text, "username")


def _add_teams(verbs: Any) -> None:
    output.add_output(add_verb(verbs, "list", list_teams, "teams one may see"), names=True)
    output.add_output(add_verb(verbs, "get", get_team, "one team with its people", "slug"))
    made = add_verb(verbs, "create", create_team, "a new team", "title")
    made.add_argument("--slug", default="", help="stands in addresses and stays; from the name")
    _add_facts(made)
    changed = add_verb(verbs, "update", update_team, "change the given", "slug")
    changed.add_argument("--name", dest="title", default=None, help="as people read it")
    _add_facts(changed)
    add_verb(verbs, "delete", delete_team, "refused while it owns an endpoint", "slug")
    joined = add_verb(
        verbs, "add", join, "take somebody in, or change their role", "slug", "username"
    )
    joined.add_argument("role", choices=TEAM_ROLES)
    add_verb(verbs, "remove", leave, "send somebody away", "slug", "username")


def _add_facts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--description", default=None, help="for people")
    parser.add_argument(
        "--namespace",
        action="append",
        dest="namespaces",
        default=None,
        help="where on clusters its endpoints may be; several times; none: anywhere",
    )
    parser.add_argument(
        "--grant",
        action="append",
        dest="grants",
        choices=(*Grant, NO_GRANT),
        default=None,
        help="what its endpoints may have beyond plain pods; several times, in place of the "
        f"present ones; {NO_GRANT}: take all away",
    )


def _add_tokens(verbs: Any) -> None:
    listed = add_verb(verbs, "list", list_tokens, "one's own; an admin's list is everybody's")
    listed.add_argument("--user", default="", help="of this person")
    listed.add_argument("--team", default="", help="for this team alone")
    output.add_output(listed)
    made = add_verb(verbs, "create", create_token, "prints the token, once and alone", "label")
    made.add_argument("--role", choices=TEAM_ROLES, required=True, help="at most this")
    made.add_argument("--days", type=int, help="until it expires; never if left out")
    made.add_argument("--team", default="", help="for this team alone, by its slug")
    text = "whose; needed on the console's own machine, and allowed only there"
    made.add_argument("--user", default="", help=text)
    text = "programs that use it stop working at once; by its id or name"
    add_verb(verbs, "revoke", revoke_token, text, "id")


def list_users(asked: CommandContext) -> str:
    found = asked.client.users.list(role=asked.options["role"], team=asked.options["team"])
    form = asked.options["output"]
    return output.rows(found, form, _USERS, _user, none="Nobody is so.", key="username")


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


def get_user(asked: CommandContext) -> str:
    found = asked.client.users.get(asked.options["username"])
    form = asked.options["output"]
    return (
        output.table(_USERS, [_user(found)])
        if form == output.TABLE
        else output.format_data(found, form)
    )


def create_user(asked: CommandContext) -> str:
    options = asked.options
    made = asked.client.users.create(options["username"], options["role"])
    asked.say(f"{made['username']} ({made['role']}) is added. Their password, once:")
    return str(made["password"])


def set_role(asked: CommandContext) -> str:
    found = asked.client.users.change(asked.options["username"], {"role": asked.options["role"]})
    return f"{found['username']} is {found['role']} now."


def set_active(asked: CommandContext) -> str:
    active = asked.options["active"]
    found = asked.client.users.change(asked.options["username"], {"active": active})
    ended = "cannot log in: sessions are ended, API tokens revoked"
    state = "may log in again" if active else ended
    return f"{found['username']} {state}."


def reset_password(asked: CommandContext) -> str:
    found = asked.client.users.new_password(asked.options["username"])
    asked.say(
        f"Ended: {found['sessions_ended']} sessions, {found['tokens_revoked']} API tokens."
    )  # only the password goes to standard output
    return str(found["password"])


def list_teams(asked: CommandContext) -> str:
    none = "There is no team. Make one: emberline team create NAME"
    found = asked.client.teams.list()
    return output.rows(found, asked.options["output"], _TEAMS, _team, none=none, key="slug")


def _team(one: dict[str, Any]) -> tuple[str, ...]:
    spaces = ", ".join(one["namespaces"]) or "anywhere"
    grants = ", ".join(one["grants"]) or "-"
    return one["slug"], one["name"], str(one["people"]), spaces, grants, one["description"]


def get_team(asked: CommandContext) -> str:
    slug, form = asked.options["slug"], asked.options["output"]
    found = asked.client.teams.get(slug)
    members = list(asked.client.teams.members(slug))
    if form != output.TABLE:
        return output.format_data({**found, "members": members}, form)
    rows = [
        (one["username"], one["role"], one["said_by"], output.format_time(one["since"]))
        for one in members
    ]
    return f"{output.table(_TEAMS, [_team(found)])}\n\n{output.table(_MEMBERS, rows)}"


def create_team(asked: CommandContext) -> str:
    made = asked.client.teams.create(_facts(asked, slug=asked.options["slug"]))
    slug = made["slug"]
    return f"Team {slug} is made. Take somebody in: emberline team add {slug} NAME ROLE"


def update_team(asked: CommandContext) -> str:
    changed = asked.client.teams.change(asked.options["slug"], _facts(asked))
    return f"Team {changed['slug']} is changed."


def _facts(asked: CommandContext, **more: str) -> dict[str, Any]:
    options = asked.options
    grants = options["grants"]
    facts = {
        "name": options["title"],
        "description": options["description"],
        "namespaces": options["namespaces"],
        "grants": None if grants is None else [one for one in grants if one != NO_GRANT],
        **{name: value for name, value in more.items() if value},
    }
    return {name: value for name, value in facts.items() if value is not None}


def delete_team(asked: CommandContext) -> str:
    asked.client.teams.delete(asked.options["slug"])
    return f"Team {asked.options['slug']} is deleted. Tokens for it alone have ended."


def join(asked: CommandContext) -> str:
    options = asked.options
    asked.client.teams.set_member(options["slug"], options["username"], options["role"])
    return f"{options['username']} is {options['role']} of team {options['slug']}."


def leave(asked: CommandContext) -> str:
    options = asked.options
    asked.client.teams.remove_member(options["slug"], options["username"])
    return f"{options['username']} is in team {options['slug']} no longer."


def list_tokens(asked: CommandContext) -> str:
    found = asked.client.tokens.list(user=asked.options["user"], team=asked.options["team"])
    return output.rows(found, asked.options["output"], _TOKENS, _token, none="There are no tokens.")


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
    given, listing = asked.options["id"], "emberline token list"
    token = commandline_input.find_row(asked.client.tokens.list(), given, "token", listing)
    asked.client.tokens.revoke(str(token["id"]))
    return f"Token {token['name']} is revoked."
