"""An agno agent whose tools stay hidden until it searches for them."""

from agno.agent import Agent
from agno.models.openai import OpenAIChat

from toolscout.adapters.agno import ToolScoutTools


def refund_order(order: str) -> str:
    """Pay the money for an order back to the customer."""
    return f"{order} is refunded."


def track_parcel(number: str) -> str:
    """Tell where a parcel is."""
    return f"{number} is in Bonn."


def restock_shelf(article: str, pieces: int) -> str:
    """Order more pieces of an article from the supplier."""
    return f"{pieces} of {article} are on their way."


tools = ToolScoutTools([refund_order, track_parcel, restock_shelf])  # or whole toolkits
agent = Agent(model=OpenAIChat("gpt-5.5"), tools=[tools])
reply = agent.run("Please refund order A-7.")  # pyright: ignore[reportUnknownMemberType]
print(reply.content)
