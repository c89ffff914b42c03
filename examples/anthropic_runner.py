"""Anthropic's tool runner with hidden tools. Run it: `python examples/anthropic_runner.py`."""

from anthropic import Anthropic

from toolscout.adapters.anthropic import ToolScoutToolset


def refund_invoice(invoice_id: str, amount: int) -> str:
    """Refund an invoice: give money back to the customer."""
    return f"Refunded {amount} of {invoice_id}."


def translate_contract(contract_id: str, language: str) -> str:
    """Translate a contract into another language."""
    return f"{contract_id} is now in {language}."


def restart_server(server_id: str) -> str:
    """Restart a server that hangs."""
    return f"{server_id} is up again."


client = Anthropic()
toolset = ToolScoutToolset([refund_invoice, translate_contract, restart_server], client)
messages = [{"role": "user", "content": "Please refund invoice inv-7, 500 cents."}]
request = toolset.request(messages)
runner = client.beta.messages.tool_runner(model="claude-opus-4-6", max_tokens=1000, **request)
for reply in runner:
    print(*(block.text for block in reply.content if block.type == "text"), end="")
