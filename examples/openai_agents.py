"""An agent of OpenAI's Agents SDK whose tools are found when they are needed."""

from agents import Agent, Runner, function_tool

from toolscout.adapters.openai_agents import ToolScoutModel


@function_tool
def refund_invoice(invoice_id: str, amount: int) -> str:
    """Refund an invoice: give money back to the customer."""
    return f"Refunded {amount} of {invoice_id}."


@function_tool
def translate_contract(contract_id: str, language: str) -> str:
    """Translate a contract into another language."""
    return f"{contract_id} is now in {language}."


agent = Agent(
    name="clerk",
    instructions="Be brief.",
    model=ToolScoutModel("gpt-5.5"),
    tools=[refund_invoice, translate_contract],  # or 300, and mcp_servers=[…]
)
result = Runner.run_sync(agent, "Please refund invoice inv-7, 500 cents.")
print(result.final_output)
