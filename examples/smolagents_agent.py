"""smolagents: an agent whose tools stay hidden until it searches for them."""

from smolagents import OpenAIModel, tool

from toolscout.adapters.smolagents import ToolScoutAgent


@tool
def refund_order(order: str) -> str:
    """Pay the money for an order back to the customer.

    Args:
        order: Its number.
    """
    return f"{order} is refunded."


@tool
def track_parcel(number: str) -> str:
    """Tell where a parcel is.

    Args:
        number: The parcel's.
    """
    return f"{number} is in Bonn."


agent = ToolScoutAgent([refund_order, track_parcel], OpenAIModel("gpt-5.5"))  # or three hundred
print(agent.run("Please refund order A-7."))
