"""Agent Framework: an agent whose tools stay hidden until it searches for them."""

import asyncio

from agent_framework import Agent
from agent_framework.openai import OpenAIChatCompletionClient

from toolscout.adapters.agent_framework import ToolScoutProvider


def refund_order(order: str) -> str:
    """Pay the money for an order back to the customer."""
    return f"{order} is refunded."


def track_parcel(number: str) -> str:
    """Tell where a parcel is."""
    return f"{number} is in Bonn."


async def main() -> None:
    """Ask the agent once."""
    client = OpenAIChatCompletionClient(model="gpt-5.5")
    tools = [refund_order, track_parcel]  # or three hundred
    agent = Agent(client=client, tools=tools, context_providers=[ToolScoutProvider()])
    print((await agent.run("Please refund order A-7.")).text)


asyncio.run(main())
