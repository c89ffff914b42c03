"""A loop that is left as it was; only its client is wrapped."""

from anthropic import Anthropic
from anthropic.types import MessageParam, ToolParam, ToolResultBlockParam, ToolUseBlock

from toolscout.adapters.anthropic import wrap

SCHEMA: dict[str, object] = {"type": "object", "properties": {"order": {"type": "string"}}}
DEEDS = {"refund": "Give the money back for", "cancel": "Cancel", "reprint": "Print once more"}
TOOLS: list[ToolParam] = [
    {"name": f"{deed}_order", "description": f"{text} an order.", "input_schema": SCHEMA}
    for deed, text in DEEDS.items()
]


def run(call: ToolUseBlock) -> ToolResultBlockParam:
    """Do what the model asked for."""
    done = f"{call.name} done: {call.input['order']}"
    return {"type": "tool_result", "tool_use_id": call.id, "content": done}


client, model = wrap(Anthropic()), "claude-opus-4-6"
messages: list[MessageParam] = [{"role": "user", "content": "Please refund order 7."}]
while messages[-1]["role"] == "user":
    reply = client.messages.create(model=model, max_tokens=99, tools=TOOLS, messages=messages)
    messages.append({"role": "assistant", "content": reply.content})
    print(*(block.text for block in reply.content if block.type == "text"), end="")
    if results := [run(block) for block in reply.content if block.type == "tool_use"]:
        messages.append({"role": "user", "content": results})
