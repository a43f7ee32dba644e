"""The console's own machine, for the command line: its preflight, its keys, and its demo."""

from __future__ import annotations

from console.clusters import actions as clusters
from console.clusters import sealing
from console.commandline.asked import Wrong
from console.commandline.exits import FAILED
from console.system import preflight
from endpoints.commandline import demo


class ThisMachine:
    def seed_demo(self) -> str:
        return demo.seed_demo()

    def doctor(self) -> tuple[str, bool]:
        """Past the API, which may be what is broken."""
        found = preflight.ask()
        well = not any(verdict.needed and not verdict.ok for verdict in found)
        return "\n".join(str(verdict) for verdict in found), well

    def rekey(self) -> str:
        try:
            done = clusters.rekey(None)
        except sealing.Unreadable as error:
            raise Wrong(str(error), FAILED) from None
        return f"Sealed anew: {', '.join(done)}." if done else "All are sealed with the first key."
