"""The console's own machine, for the command line: its preflight, its keys, and its demo."""

from __future__ import annotations

from console.audit import chain, integrity
from console.commandline.context import Wrong
from console.commandline.exits import FAILED, USAGE
from console.system import preflight
from console.vault import key_rotation
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
        found = key_rotation.rekey()
        told = f"Sealed anew: {', '.join(found.done)}." if found.done else ""
        if found.unreadable:
            lost = f"No key here opens what is kept for {', '.join(found.unreadable)}."
            remedy = "Put the earlier key behind the present one, or give those secrets anew."
            raise Wrong(" ".join(part for part in (told, lost, remedy) if part), FAILED)
        return told or "All are sealed with the first key."

    def audit(self, verb: str, argument: str) -> str:
        if verb == "reseal":
            return integrity.reseal()
        if verb == "prune":
            try:
                return integrity.prune(argument)
            except ValueError:
                text = f"--before {argument!r} cannot be used: write a day as 2026-01-31."
                raise Wrong(text, USAGE) from None
            except chain.BrokenChainError as error:
                text = f"Nothing was deleted: the log was changed outside the console: {error}."
                raise Wrong(f"{text} Run emberline audit verify.", FAILED) from None
        text, intact = integrity.verify()
        differs = integrity.compare(argument) if intact and argument else ""
        if not intact or differs:
            raise Wrong(differs or text, FAILED)
        return text
