"""A FastMCP server that lists three tools, however many it has."""

from fastmcp import FastMCP

from toolscout.adapters.fastmcp import ToolScoutTransform

mcp = FastMCP("shop")


@mcp.tool
def refund_order(order: str) -> str:
    """Pay the money for an order back to the customer."""
    return f"{order} is refunded."


@mcp.tool
def track_parcel(number: str) -> str:
    """Tell where a parcel is."""
    return f"{number} is in Bonn."


mcp.add_transform(ToolScoutTransform())

if __name__ == "__main__":
    mcp.run()
