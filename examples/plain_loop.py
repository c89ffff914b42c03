"""Hidden tools at any endpoint that speaks Chat Completions, without an SDK."""

import json
import os
from urllib.request import Request, urlopen

from toolscout import Catalog, Mode, Scout, Settings


def refund_invoice(invoice_id: str, amount: int) -> str:
    """Refund an invoice: give money back to the customer."""
    return f"Refunded {amount} of {invoice_id}."


url = f"{os.environ['OPENAI_BASE_URL']}/chat/completions"
key = f"Bearer {os.environ['OPENAI_API_KEY']}"
headers = {"Authorization": key, "Content-Type": "application/json"}
scout = Scout(Catalog({"shop": [refund_invoice]}), settings=Settings(mode=Mode.NATIVE))
session = scout.session("conversation-42")
messages = [{"role": "user", "content": "Please refund invoice inv-7, 500 cents."}]
for _ in range(20):
    body = {"model": "any", "messages": messages, "tools": session.tools("openai-chat")}
    with urlopen(Request(url, json.dumps(body).encode(), headers)) as answer:
        messages.append(json.load(answer)["choices"][0]["message"])
    for call in messages[-1].get("tool_calls") or []:
        reply = session.handle_sync(call["function"]["name"], call["function"]["arguments"])
        messages.append(reply.to_message("openai-chat", call["id"]))
    if messages[-1]["role"] == "assistant":
        break
print(messages[-1]["content"])
