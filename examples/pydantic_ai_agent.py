"""A Pydantic AI agent whose tools stay hidden until it searches for them."""

from pydantic_ai import Agent

from toolscout.adapters.pydantic_ai import ToolScoutToolset


def refund_order(order: str) -> str:
    """Pay the money for an order back to the customer."""
    return f"{order} is refunded."


def track_parcel(number: str) -> str:
    """Tell where a parcel is."""
    return f"{number} is in Bonn."


def restock_shelf(article: str, pieces: int) -> str:
    """Order more pieces of an article from the supplier."""
    return f"{pieces} of {article} are on their way."


tools = ToolScoutToolset([refund_order, track_parcel, restock_shelf])
agent = Agent("openai-chat:gpt-5.5", toolsets=[tools])
print(agent.run_sync("Please refund order A-7.").output)
