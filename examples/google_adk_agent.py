"""An ADK agent whose tools stay hidden until it searches for them."""

import asyncio

from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner

from toolscout.adapters.google_adk import ToolScoutToolset


def refund_order(order: str) -> str:
    """Pay the money for an order back to the customer."""
    return f"{order} is refunded."


def track_parcel(number: str) -> str:
    """Tell where a parcel is."""
    return f"{number} is in Bonn."


tools = ToolScoutToolset([refund_order, track_parcel])
agent = LlmAgent(name="clerk", model="gemini-3-pro", tools=[tools])
asyncio.run(InMemoryRunner(agent=agent).run_debug("Please refund order A-7."))
