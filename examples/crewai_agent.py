"""A CrewAI agent whose tools stay hidden until it searches for them."""

from crewai import Agent
from crewai.tools import tool

from toolscout.adapters.crewai import hide_tools


@tool
def refund_order(order: str) -> str:
    """Pay the money for an order back to the customer."""
    return f"{order} is refunded."


@tool
def track_parcel(number: str) -> str:
    """Tell where a parcel is."""
    return f"{number} is in Bonn."


agent = Agent(
    role="Clerk",
    goal="Serve the customers of a shop",
    backstory="You work at the counter.",
    llm="openai/gpt-5.5",
    tools=[refund_order, track_parcel],
)
hide_tools(agent)
print(agent.kickoff("Please refund order A-7."))  # pyright: ignore[reportUnknownMemberType]
