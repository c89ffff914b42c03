"""Plain code as an agent: a loop over HTTP with a `Session`, and no SDK at all."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.error import HTTPError
from urllib.request import Request as Post
from urllib.request import urlopen

from adapters.specs import Ledger, Spec
from adapters.surfaces import DialectName
from toolscout import Catalog, Reply, Scout, Session, Settings, Tool
from toolscout.settings import Hiding, Mode

Json = dict[str, Any]
PATHS = {
    "openai-chat": "/chat/completions",
    "openai-responses": "/responses",
    "anthropic": "/messages",
}


@dataclass(frozen=True)
class Loops:
    """Makes loops of one mode and dialect; without a mode, loops that show all tools."""

    mode: Mode | None
    dialect: DialectName
    kind: "type[Loop] | None" = None
    settings: Settings | None = None

    def __call__(
        self, specs: Sequence[Spec], ledger: Ledger, base_url: str, saved: object | None
    ) -> "Loop":
        catalog = Catalog()
        catalog.add("", [_tool(spec) for spec in specs])
        shown = Settings(hiding=Hiding.OFF)
        settings = self.settings or (Settings(mode=self.mode) if self.mode else shown)
        scout = Scout(
            catalog, executors=lambda tool, given: ledger.run(tool.name, given), settings=settings
        )
        kept = cast("Json", saved or {})
        session = scout.restore(kept["session"]) if kept else scout.session("loop")
        make = self.kind or Loop
        return make(scout, session, ledger, self.dialect, base_url, kept.get("messages", []))


@dataclass
class Loop:
    """One conversation."""

    scout: Scout
    session: Session
    ledger: Ledger
    dialect: DialectName
    base_url: str
    messages: list[Json] = field(default_factory=list[Json])

    def ask(self, message: str) -> str:
        return asyncio.run(self.ask_async(message))

    async def ask_async(self, message: str) -> str:
        self.messages.append({"role": "user", "content": message})
        while True:
            said, text, calls = self._read(await asyncio.to_thread(self.answer))
            self.messages += said
            if not calls:
                return text
            results = [
                self.to_message(await self.answered(name, given), id_) for id_, name, given in calls
            ]
            if self.dialect == "anthropic":
                results = [{"role": "user", "content": results}]
            self.messages += results

    def another(self) -> "Loop":
        session = self.scout.session("another")
        return type(self)(self.scout, session, self.ledger, self.dialect, self.base_url)

    def saved(self) -> object:
        state = {"session": self.session.to_json(), "messages": self.messages}
        return json.loads(json.dumps(state))

    # What a careless adapter would do otherwise.

    def tools(self) -> list[Json]:
        return self.session.tools(self.dialect)

    def system(self) -> str:
        return self.session.system_prompt()

    async def answered(self, name: str, arguments: object) -> Reply:
        return await self.session.handle(name, arguments)

    def to_message(self, reply: Reply, id_: str) -> Json:
        return reply.to_message(self.dialect, id_)

    def answer(self) -> Json:
        return json.loads(self.posted())

    def posted(self, **options: object) -> str:
        """Return what the provider answers to the next request."""
        body: Json = {"model": "gpt-5.5", "tools": self.tools(), **options}
        section = self.system()
        match self.dialect:
            case "openai-chat":
                body["messages"] = [{"role": "system", "content": section}, *self.messages]
            case "openai-responses":
                body |= {"instructions": section, "input": self.messages}
            case _:
                body |= {"system": section, "messages": self.messages, "max_tokens": 1_000}
        url = f"{self.base_url}{PATHS[self.dialect]}"
        return _posted(Post(url, json.dumps(body).encode(), method="POST"))

    def _read(self, answer: Json) -> tuple[list[Json], str, list[tuple[str, str, object]]]:
        """Return what to keep of an answer, its text, and its calls."""
        match self.dialect:
            case "openai-chat":
                message = answer["choices"][0]["message"]
                return [message], message["content"] or "", list(_chat_calls(message))
            case "openai-responses":
                output: list[Json] = answer["output"]
                texts = [item["content"][0]["text"] for item in output if "content" in item]
                return output, "".join(texts), list(_responses_calls(output))
            case _:
                blocks: list[Json] = answer["content"]
                texts = [block["text"] for block in blocks if block["type"] == "text"]
                kept: Json = {"role": "assistant", "content": blocks}
                used = [block for block in blocks if block["type"] == "tool_use"]
                return [kept], "".join(texts), [(b["id"], b["name"], b["input"]) for b in used]


class Refused(Exception):
    """The provider does not take a request."""


def _posted(request: Post) -> str:
    try:
        with urlopen(request) as answer:
            return answer.read().decode()
    except HTTPError as error:
        with error:
            raise Refused(error.read().decode()) from error


def _tool(spec: Spec) -> Tool:
    return Tool(name=spec.name, description=spec.description, input_schema=spec.schema)


def _chat_calls(message: Json) -> Iterator[tuple[str, str, object]]:
    for made in message.get("tool_calls") or ():
        yield made["id"], made["function"]["name"], made["function"]["arguments"]


def _responses_calls(output: list[Json]) -> Iterator[tuple[str, str, object]]:
    for item in output:
        if item["type"] == "function_call":
            yield item["call_id"], item["name"], item["arguments"]
        elif item["type"] == "tool_search_call":
            yield item["call_id"], "tool_search", item["arguments"]
