"""The console's own machine, for the command line: its preflight, its keys, and its demo."""

from __future__ import annotations

from console.clusters import rekeying
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
        found = rekeying.rekey()
        told = f"Sealed anew: {', '.join(found.done)}." if found.done else ""
        if found.unreadable:
            lost = f"No key here opens what is kept for {', '.join(found.unreadable)}."
            remedy = "Put the earlier key behind the present one, or give those secrets anew."
            raise Wrong(" ".join(part for part in (told, lost, remedy) if part), FAILED)
        return told or "All are sealed with the first key."
