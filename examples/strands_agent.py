"""Strands: an agent whose tools stay hidden until it searches for them."""

from strands import Agent, tool
from strands.models.openai import OpenAIModel

from toolscout.adapters.strands import ToolScoutPlugin


@tool
def refund_order(order: str) -> str:
    """Pay the money for an order back to the customer."""
    return f"{order} is refunded."


@tool
def track_parcel(number: str) -> str:
    """Tell where a parcel is."""
    return f"{number} is in Bonn."


@tool
def restock_shelf(article: str, pieces: int) -> str:
    """Order more pieces of an article from the supplier."""
    return f"{pieces} of {article} are on their way."


tools = [refund_order, track_parcel, restock_shelf]  # or three hundred
agent = Agent(OpenAIModel(model_id="gpt-5.5"), tools=tools, plugins=[ToolScoutPlugin()])
agent("Please refund order A-7.")
