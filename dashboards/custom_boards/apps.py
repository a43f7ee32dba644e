from __future__ import annotations

from django.apps import AppConfig


class CustomBoardsConfig(AppConfig):
    name = "dashboards.custom_boards"
    label = "custom_boards"

    def ready(self) -> None:
        from console.audit.targets import TargetKind, register_kind
        from console.web.shell import navigation
        from console.web.shell.search import register_finder
        from dashboards.custom_boards import selectors

        register_finder(selectors.find)
        register_kind(
            TargetKind("custom-board", "custom_boards:board", selectors.existing, "board_id")
        )
        navigation.register_item(
            navigation.NavItem("Custom boards", "custom_boards:list", "layout-dashboard", 51)
        )
