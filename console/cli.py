"""The `emberline` script: runs a command against a remote console or, if none is selected, this
machine's console in this process.

Django is loaded only for the latter.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
from typing import Any

from console.client import Client
from console.commandline import context, parser, profiles
from console.commandline.context import CommandError, LocalConsole
from console.commandline.platform import prompts

_NO_CONSOLE = (
    "No console selected, and none is installed here. Select one with emberline login "
    "https://HOST, or EMBERLINE_URL and EMBERLINE_TOKEN_FILE. To install a console: pip install "
    "'emberline[console]'."
)
_COMMANDS_WITHOUT_CONSOLE = ("login", "logout", "completion", "prompts")
"""Commands without a console, or with one named by an argument."""


_NOT_WRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def main() -> None:
    sys.stdout = sys.stdout or io.StringIO()  # closed by the caller, as in `>&-`
    sys.stderr = sys.stderr or io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8
    try:
        code = _run(sys.argv[1:])
    except BrokenPipeError:  # the reader closed the pipe, as in `| head`
        _discard_output()
        sys.exit(141)  # shell convention for SIGPIPE
    except OSError as error:
        if error.errno not in _NOT_WRITABLE:
            raise
        _discard_output()
        done = "The command itself may have been carried out."
        sys.exit(f"The output cannot be written: {error.strerror}. {done}")
    except KeyboardInterrupt:
        code = 130
    if code:
        sys.exit(code)


def _discard_output() -> None:
    """Discard what is still buffered, so that no flush fails at the exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(words: list[str]) -> int:
    typed = parser.build_parser(prompts.add_prompts)
    options: dict[str, Any] = {**vars(typed.parse_args(words)), "parser": typed}
    try:
        if options["room"] in _COMMANDS_WITHOUT_CONSOLE:
            ended = context.run(options, _no_console, sys.stdout, sys.stderr)
        else:
            ended = _run_command(options)
    except CommandError as error:
        ended = context.CommandEnded(str(error), error.exit_code, ok=False)
    if ended.text:
        (sys.stdout if ended.ok else sys.stderr).write(f"{ended.text}\n")
    sys.stdout.flush()
    return ended.exit_code


def _run_command(options: dict[str, Any]) -> context.CommandEnded:
    console = profiles.select_console(options, os.environ)
    if console is None:
        return _run_locally(options)
    profile = console.profile
    options["named_by"] = console.named_by

    def connect() -> Client:
        return Client(profile.url, profile.token, ca_file=profile.ca_file)

    return context.run(options, connect, sys.stdout, sys.stderr)


def _run_locally(options: dict[str, Any]) -> context.CommandEnded:
    gc.disable()  # what is imported here stays: collecting it takes a fifth of a command's time
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    try:
        import django
    except ModuleNotFoundError:
        raise CommandError(_NO_CONSOLE, context.USAGE) from None
    from console.core.environment import SettingError
    from console.launcher import runtime_environment

    runtime_environment.adopt_environment(os.environ)

    try:
        django.setup()
    except SettingError as error:
        raise CommandError(str(error), context.USAGE) from None
    from console import local_api
    from endpoints.commandline.local_machine import ThisMachine

    gc.freeze()
    gc.enable()
    here: LocalConsole = ThisMachine()
    with local_api.without_request_log():
        return context.run(options, local_api.client, sys.stdout, sys.stderr, here)


def _no_console() -> Client:
    raise AssertionError("verbs without a console")


if __name__ == "__main__":
    main()
