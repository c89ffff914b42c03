"""AutoGen: an agent whose tools stay hidden until it searches for them."""

import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient

from toolscout.adapters.autogen import ToolScoutWorkbench


def refund_order(order: str) -> str:
    """Pay the money for an order back to the customer."""
    return f"{order} is refunded."


def track_parcel(number: str) -> str:
    """Tell where a parcel is."""
    return f"{number} is in Bonn."


def restock_shelf(article: str, pieces: int) -> str:
    """Order more pieces of an article from the supplier."""
    return f"{pieces} of {article} are on their way."


model = OpenAIChatCompletionClient(model="gpt-4.1")
tools = ToolScoutWorkbench([refund_order, track_parcel, restock_shelf])  # or three hundred
agent = AssistantAgent("clerk", model, workbench=tools, max_tool_iterations=10)
print(asyncio.run(agent.run(task="Please refund order A-7.")).messages[-1].to_text())
