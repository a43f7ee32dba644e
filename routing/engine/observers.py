"""Who is told of each request, besides the path that carries it: one list per moment of a request.

An observer reads the request and notes something of its own; it never delays or diverts one. One
that is off is in no list, so that a request pays nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from routing.engine.prompt.identity import Identity
    from routing.engine.request import RoutedRequest


class Observers:
    """The four moments, in the order in which a request passes them (Router._list_observers)."""

    def __init__(self) -> None:
        # Its prompt was read, no worker is chosen. Not for requests refused before.
        self.arrived: list[Callable[[RoutedRequest, Identity], None]] = []
        # `decision.chosen` was picked; once per attempt, before the worker has it.
        self.placed: list[Callable[[RoutedRequest], None]] = []
        # The worker's first answer byte is here: the prompt was computed.
        self.answered: list[Callable[[RoutedRequest], None]] = []
        # It is over, however it ended, and its tokens are counted.
        self.ended: list[Callable[[RoutedRequest], None]] = []
