"""OpenAI's Responses with hidden tools. Run it: `python examples/openai_responses.py`."""

from typing import Any

from openai import OpenAI

from toolscout.adapters.openai import ToolScoutResponses


def refund_invoice(invoice_id: str, amount: int) -> str:
    """Refund an invoice: give money back to the customer."""
    return f"Refunded {amount} of {invoice_id}."


def translate_contract(contract_id: str, language: str) -> str:
    """Translate a contract into another language."""
    return f"{contract_id} is now in {language}."


client, model = OpenAI(), "gpt-5.5"
tools = ToolScoutResponses([refund_invoice, translate_contract], model=model)  # or 300
session = tools.open("conversation-42")
items: list[Any] = [{"role": "user", "content": "Please refund invoice inv-7, 500 cents."}]
while True:
    response = client.responses.create(model=model, input=items, tools=tools.list_tools(session))
    answers = tools.answer_sync(session, response)
    items += [*response.output, *answers]
    if not answers:
        break
print(response.output_text)
