"""A loop that knows nothing of toolscout, with a client that does."""

import json
from typing import Any

from openai import OpenAI

from toolscout import Settings
from toolscout.adapters.openai import wrap
from toolscout.settings import Hiding

refund: Any = {
    "name": "refund_invoice",
    "description": "Refund an invoice: give money back to the customer.",
    "parameters": {"type": "object", "properties": {"amount": {"type": "integer"}}},
}
tools: Any = [{"type": "function", "function": refund}]  # or 300
client = wrap(OpenAI(), settings=Settings(hiding=Hiding.ON))  # else only long lists are hidden
messages: Any = [{"role": "user", "content": "Please refund invoice inv-7, 500 cents."}]
while True:
    done = client.chat.completions.create(model="gpt-4.1", messages=messages, tools=tools)
    messages.append(message := done.choices[0].message)
    for call in message.tool_calls or []:
        if call.type == "function":
            result = f"Refunded {json.loads(call.function.arguments)['amount']}."
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    if not message.tool_calls:
        break
print(message.content)
