"""Login policy, read once from the environment.

An invalid value stops the start with the variable and the expected value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from console.core import environment
from console.core.environment import SettingError

LOCAL_LOGIN = ("everybody", "break-glass")
SECOND_FACTOR = ("optional", "admins", "everybody")


@dataclass(frozen=True, slots=True)
class LoginPolicy:
    local_login: str = "everybody"
    break_glass: tuple[str, ...] = ()  # user names, case-folded
    second_factor: str = "optional"
    idle: timedelta = timedelta(hours=12)
    longest: timedelta = timedelta(days=7)
    confirm: timedelta = timedelta(minutes=30)


def load_policy(env: Mapping[str, str]) -> LoginPolicy:
    local = environment.choice(env, "EMBERLINE_LOCAL_LOGIN", "everybody", LOCAL_LOGIN)
    names = tuple(name.casefold() for name in environment.split_list(env, "EMBERLINE_BREAK_GLASS"))
    if local == "break-glass" and not names:
        remedy = "name at least one admin in EMBERLINE_BREAK_GLASS, or nobody gets in without SSO"
        raise SettingError("EMBERLINE_LOCAL_LOGIN", local, remedy)
    idle = _number(env, "EMBERLINE_SESSION_IDLE_MINUTES", 720, 5, 60 * 24 * 30)
    longest = _number(env, "EMBERLINE_SESSION_HOURS", 168, 1, 24 * 90)
    confirm = _number(env, "EMBERLINE_CONFIRM_MINUTES", 30, 1, 60 * 24)
    return LoginPolicy(
        local_login=local,
        break_glass=names,
        second_factor=environment.choice(env, "EMBERLINE_SECOND_FACTOR", "optional", SECOND_FACTOR),
        idle=timedelta(minutes=idle),
        longest=timedelta(hours=longest),
        confirm=timedelta(minutes=confirm),
    )


def _number(env: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    value = environment.text(env, name) or str(default)
    if not value.isdecimal() or not least <= int(value) <= most:
        raise SettingError(name, value, f"write a whole number from {least} to {most}")
    return int(value)
