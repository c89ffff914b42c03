"""LangChain: an agent whose tools are found when they are needed."""

from langchain.agents import create_agent  # pyright: ignore[reportUnknownVariableType]
from langchain_openai import ChatOpenAI

from toolscout.adapters.langchain import ToolScoutMiddleware


def refund_order(order_id: str, cents: int) -> str:
    """Pay money back to the customer of an order."""
    return f"Refunded {cents} cents of order {order_id}."


def track_parcel(parcel_id: str) -> str:
    """Tell where a parcel is and when it arrives."""
    return f"Parcel {parcel_id} arrives tomorrow."


def restart_server(name: str) -> str:
    """Restart a server that hangs."""
    return f"{name} is up again."


tools = [refund_order, track_parcel, restart_server]  # or three hundred
agent = create_agent(ChatOpenAI(model="gpt-5.5"), tools, middleware=[ToolScoutMiddleware()])
request = {"role": "user", "content": "Please refund 500 cents of order A-7."}
result = agent.invoke({"messages": [request]})  # pyright: ignore[reportUnknownMemberType]
for message in result["messages"]:
    message.pretty_print()
