"""Pydantic AI's own tool search, with toolscout's ranking."""

from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.capabilities import ToolSearch

from toolscout.adapters.pydantic_ai import create_strategy


def refund_order(order: str) -> str:
    """Pay the money for an order back to the customer."""
    return f"{order} is refunded."


def track_parcel(number: str) -> str:
    """Tell where a parcel is."""
    return f"{number} is in Bonn."


tools = FunctionToolset([refund_order, track_parcel]).defer_loading()
search = ToolSearch(strategy=create_strategy())
agent = Agent("openai-chat:gpt-5.5", toolsets=[tools], capabilities=[search])
print(agent.run_sync("Please refund order A-7.").output)
