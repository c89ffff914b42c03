"""A scout with its own server, in addition to the tools of an SDK."""

from dataclasses import dataclass, field
from typing import Any

from adapters.provider import call
from toolscout import Catalog, Policy, Scout, Settings, Tool
from toolscout.settings import Mode

FIND_SCALES = call("tool_search", queries=["weigh a parcel on the scales"], limit=1)
WEIGH = call("scales__weigh_parcel", number="p-1")


@dataclass
class Scales:
    """A server with one tool, and the calls that reached it."""

    policy: Policy | None = None
    mode: Mode = Mode.NATIVE
    weighed: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def scout(self) -> Scout:
        """Return a scout that runs the tool here."""
        schema = {"type": "object", "properties": {"number": {"type": "string"}}}
        text = "Weigh a parcel on the scales."
        tool = Tool.define("weigh_parcel", server="scales", description=text, input_schema=schema)
        catalog, settings = Catalog(), Settings(mode=self.mode)
        catalog.replace("scales", [tool])
        run = {"scales": self._run}
        return Scout(catalog, executors=run, settings=settings, policy=self.policy)

    def _run(self, tool: Tool, arguments: dict[str, Any]) -> str:
        self.weighed.append(arguments)
        return "It weighs 3 kg."
