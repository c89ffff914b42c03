"""A LlamaIndex agent whose tools stay hidden until it searches for them."""

import asyncio
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai import OpenAI

from toolscout.adapters.llama_index import ToolScoutRetriever


def refund_order(order: str) -> str:
    """Pay the money for an order back to the customer."""
    return f"{order} is refunded."


def track_parcel(number: str) -> str:
    """Tell where a parcel is."""
    return f"{number} is in Bonn."


async def main() -> None:
    """Ask the agent once."""
    retriever = ToolScoutRetriever([refund_order, track_parcel])
    agent: Any = FunctionAgent(tool_retriever=retriever, llm=OpenAI("gpt-4.1"))
    print(await agent.run(user_msg="Please refund order A-7."))


asyncio.run(main())
