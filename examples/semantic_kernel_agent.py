"""A Semantic Kernel agent whose functions stay hidden until it searches for them."""

import asyncio

from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.functions import kernel_function

from toolscout.adapters.semantic_kernel import ToolScoutPlugin


@kernel_function
def refund_order(order: str) -> str:
    """Pay the money for an order back to the customer."""
    return f"{order} is refunded."


@kernel_function
def track_parcel(number: str) -> str:
    """Tell where a parcel is."""
    return f"{number} is in Bonn."


async def _main() -> None:
    plugin = ToolScoutPlugin([refund_order, track_parcel])  # or whole plugins
    agent = ChatCompletionAgent(service=OpenAIChatCompletion("gpt-5.5"), plugins=[plugin])
    print(await agent.get_response("Please refund order A-7."))


asyncio.run(_main())
