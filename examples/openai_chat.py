"""Chat Completions with hidden tools. Run it: `python examples/openai_chat.py`."""

from typing import Any

from openai import OpenAI

from toolscout.adapters.openai import ToolScoutChat


def refund_invoice(invoice_id: str, amount: int) -> str:
    """Refund an invoice: give money back to the customer."""
    return f"Refunded {amount} of {invoice_id}."


def translate_contract(contract_id: str, language: str) -> str:
    """Translate a contract into another language."""
    return f"{contract_id} is now in {language}."


tools = ToolScoutChat([refund_invoice, translate_contract])  # or 300
client, session = OpenAI(), tools.open("conversation-42")
messages: list[Any] = [{"role": "user", "content": "Please refund invoice inv-7, 500 cents."}]
while True:
    definitions = tools.list_tools(session)
    done = client.chat.completions.create(model="gpt-4.1", messages=messages, tools=definitions)
    answers = tools.answer_sync(session, done)
    messages += [done.choices[0].message, *answers]
    if not answers:
        break
print(done.choices[0].message.content)
