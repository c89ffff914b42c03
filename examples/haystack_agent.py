"""A Haystack agent whose tools stay hidden until it searches for them."""

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import tool  # pyright: ignore[reportUnknownVariableType]  # of any function

from toolscout.adapters.haystack import ToolScoutToolset


@tool
def refund_order(order: str) -> str:
    """Pay the money for an order back to the customer."""
    return f"{order} is refunded."


@tool
def track_parcel(number: str) -> str:
    """Tell where a parcel is."""
    return f"{number} is in Bonn."


tools = ToolScoutToolset([refund_order, track_parcel])
agent = Agent(chat_generator=OpenAIChatGenerator(model="gpt-5.5"), tools=tools)
result = agent.run([ChatMessage.from_user("Please refund order A-7.")])
print(result["last_message"].text)
