"""`login | logout | whoami | completion`."""

from __future__ import annotations

import argparse
import getpass
import os
import sys

from console.client import Client, NotAllowed
from console.client.client import base_url
from console.commandline import output, profiles
from console.commandline.context import NOT_ALLOWED, USAGE, CommandContext, CommandError
from console.commandline.profiles import DEFAULT, Profile
from console.commandline.verbs import OUTPUT, Verbs


def login(context: CommandContext) -> str:
    """Read the token from the terminal without echo, or from standard input: arguments are visible
    to every user of a machine.
    """
    options, path = context.options, profiles.profiles_path(os.environ)
    url = base_url(options["url"])
    ca_file = os.path.abspath(options["ca_file"]) if options["ca_file"] else ""  # noqa: PTH100
    profile = profiles.require_safe_url(Profile(url, "", ca_file, options["allow_http"]))
    name = options.get("profile") or DEFAULT
    saved = profiles.read(path)
    token = _read_token(url)
    with Client(url, token, ca_file=ca_file) as client:
        try:
            me = client.get("me")
        except NotAllowed as error:
            raise CommandError(f"{url} rejected the token. {error}", NOT_ALLOWED) from None
    entered = Profile(profile.url, token, ca_file, profile.plain)
    profiles.write(path, {**saved, name: entered})
    which = "" if name == DEFAULT else f" as profile {name}"
    return f"Logged in at {url} as {me['username']} ({me['role']}){which}."


def _read_token(url: str) -> str:
    if sys.stdin.isatty():
        sys.stderr.write(
            f"Create an API token on your profile page, {url}/profile/, and paste it here.\n"
        )
        token = getpass.getpass("Token: ").strip()
    else:
        token = sys.stdin.readline().strip()
    if not token:
        raise CommandError(
            "No token entered. Paste the token, or pipe it to standard input.", USAGE
        )
    return token


def logout(context: CommandContext) -> str:
    path, name = profiles.profiles_path(os.environ), context.options.get("profile") or DEFAULT
    saved = profiles.read(path)
    gone = saved.pop(name, None)
    if gone is None:
        return f"No saved login{'' if name == DEFAULT else f' {name}'}. Nothing was changed."
    profiles.write(path, saved)
    return f"Deleted the saved token for {gone.url}. Revoke it on your profile page."


def whoami(context: CommandContext) -> str:
    me = context.client.get("me")
    fields = {"console": context.client.url, "named_by": context.options.get("named_by", ""), **me}
    form = context.options["output"]
    if form != output.TABLE:
        return output.format_data(fields, form)
    token = f", API token {me['token']}" if me["token"] else ""
    where = "the local console" if context.here else context.client.url
    by = f" (selected by {fields['named_by']})" if fields["named_by"] else ""
    return f"{me['username']} ({me['role']}{token}) at {where}{by}"


def completion(context: CommandContext) -> str:
    try:
        import shtab
    except ModuleNotFoundError:
        raise CommandError(
            "Completion needs shtab: pip install 'emberline[client]'.", USAGE
        ) from None
    parser: argparse.ArgumentParser = context.options["parser"]
    return shtab.complete(parser, context.options["shell"])


def add_to(rooms: Verbs) -> None:
    verb = rooms.verb("login", "save the URL of a console and an API token", call=login)
    verb.add("url", help="for example https://emberline.example.com")
    verb.add("--ca-file", default="", help="CA bundle for its certificate")
    text = "allow sending the token unencrypted to another machine"
    verb.add("--allow-http", action="store_true", help=text)
    rooms.verb("logout", "delete the saved token", call=logout)
    rooms.verb("whoami", "show the selected console and user", call=whoami, form=OUTPUT)
    verb = rooms.verb(
        "completion", 'print shell completion: eval "$(emberline completion bash)"', call=completion
    )
    verb.add("shell", choices=("bash", "zsh", "tcsh"))
