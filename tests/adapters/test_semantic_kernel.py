"""Semantic Kernel keeps the contract, with the session in the chat history."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, cast

import pytest
from httpx2 import Limits
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from semantic_kernel import Kernel
from semantic_kernel.agents import ChatCompletionAgent, ChatHistoryAgentThread
from semantic_kernel.connectors.ai.function_choice_behavior import FunctionChoiceBehavior
from semantic_kernel.connectors.ai.open_ai import (
    OpenAIChatCompletion,
    OpenAIChatPromptExecutionSettings,
)
from semantic_kernel.contents import ChatHistory, ChatMessageContent, FunctionResultContent
from semantic_kernel.exceptions import KernelInvokeException
from semantic_kernel.filters import AutoFunctionInvocationContext, FunctionInvocationContext
from semantic_kernel.functions import (
    KernelArguments,
    KernelFunctionFromMethod,
    KernelParameterMetadata,
    KernelPlugin,
    kernel_function,
)
from semantic_kernel.functions.kernel_function_extension import AddToKernelCallbackProtocol

import toolscout
from adapters import contract
from adapters.contract import (
    Ledger,
    Spec,
    Surface,
    check_async,
    check_concurrent_conversations,
    check_contract,
    check_streaming,
    check_two_conversations_do_not_share,
)
from adapters.provider import Provider, call
from adapters.scripts import is_on_page, run_example
from toolscout import Catalog, Scout, Settings
from toolscout.adapters.semantic_kernel import STATE, ToolScoutPlugin
from toolscout.errors import UsageError
from toolscout.sessions.metatools import build_meta_tools

Json = dict[str, Any]


def named(name: str, arguments: Json) -> Json:
    """Functions are called by the names that the kernel gives them."""
    return {"name": f"office-{name}", "arguments": arguments}


SURFACE = Surface(rename="toolscout-{}".format, bridge=named)


def plugin_of(specs: Sequence[Spec], ledger: Ledger) -> KernelPlugin:
    return KernelPlugin(name="office", functions=[function_of(spec, ledger) for spec in specs])


def function_of(spec: Spec, ledger: Ledger) -> KernelFunctionFromMethod:
    def run(**given: Any) -> str:
        return ledger.run(spec.name, given)

    method = kernel_function(name=spec.name, description=spec.description)(run)
    required = spec.schema["required"]
    parameters = [
        KernelParameterMetadata(name=name, schema_data=schema, is_required=name in required)
        for name, schema in spec.schema["properties"].items()
    ]
    return KernelFunctionFromMethod(method=method, plugin_name="office", parameters=parameters)


def service_at(base_url: str) -> OpenAIChatCompletion:
    # Each question has an event loop of its own, so no connection may outlive one.
    http = DefaultAsyncHttpxClient(limits=Limits(max_keepalive_connections=0))
    client = AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0, http_client=http)
    return OpenAIChatCompletion("gpt-5.5", async_client=client)


def automatic() -> FunctionChoiceBehavior:
    return cast("Any", FunctionChoiceBehavior).Auto()


def add_filter(agent: ChatCompletionAgent, kind: str, added: object) -> None:
    cast("Any", agent.kernel).add_filter(kind, added)


def agent_of(provider_url: str, *plugins: object, **options: Any) -> ChatCompletionAgent:
    choice = automatic()
    choice.maximum_auto_invoke_attempts = 20  # after 5, the kernel sends no tools
    return ChatCompletionAgent(
        service=service_at(provider_url),
        name="clerk",
        plugins=[*plugins],
        function_choice_behavior=choice,
        **options,
    )


def makes(
    specs: Sequence[Spec], ledger: Ledger, base_url: str, saved: object | None
) -> contract.Agent:
    agent = agent_of(base_url, ToolScoutPlugin([plugin_of(specs, ledger)]))
    restored = ChatHistory.restore_chat_history(str(saved)) if saved else ChatHistory()
    return Conversation(agent, restored)


@dataclass
class Conversation:
    """An agent and the history of its thread."""

    agent: ChatCompletionAgent
    history: ChatHistory = field(default_factory=ChatHistory)

    def ask(self, message: str) -> str:
        return asyncio.run(self.ask_async(message))

    async def ask_async(self, message: str) -> str:
        thread = ChatHistoryAgentThread(chat_history=self.history)
        return str(await self.agent.get_response(message, thread=thread))

    async def ask_streaming(self, message: str) -> str:
        thread = ChatHistoryAgentThread(chat_history=self.history)
        said = [str(part) async for part in self.agent.invoke_stream(message, thread=thread)]
        return "".join(said)

    def another(self) -> contract.Agent:
        return Conversation(self.agent)

    def saved(self) -> object:
        return self.history.serialize()


def test_an_agent_keeps_the_contract():
    check_contract(makes, mode="bridge", dialect="openai-chat", surface=SURFACE)


def test_conversations_of_one_agent_share_nothing():
    check_two_conversations_do_not_share(
        makes, mode="bridge", dialect="openai-chat", surface=SURFACE
    )
    check_concurrent_conversations(makes, mode="bridge", dialect="openai-chat", surface=SURFACE)


def test_streaming_and_asynchronous_runs_send_the_same():
    check_streaming(makes, mode="bridge", dialect="openai-chat", surface=SURFACE)
    check_async(makes, mode="bridge", dialect="openai-chat", surface=SURFACE)


def test_the_meta_tools_have_the_very_schemas_that_toolscout_gives_them():
    with Provider(["Nothing to do."]) as provider:
        Conversation(shop_agent(provider)).ask("Hello.")

    sent = {one.name: one.sent["function"] for one in provider.requests[0].definitions}
    for tool in build_meta_tools():
        declared = sent[f"toolscout-{tool.name}"]
        expected = {k: v for k, v in tool.input_schema.items() if k != "additionalProperties"}
        assert declared["description"].startswith(tool.description)
        assert declared["parameters"] == expected
    assert "refund_order" in sent["toolscout-tool_search"]["description"]


class Shop:
    """Functions as most hosts write them."""

    @kernel_function(description="Pay the money for an order back to the customer.")
    def refund_order(self, order: Annotated[str, "Which order."], shop: str = "nobody") -> str:
        return f"{order} is refunded by {shop}."

    @kernel_function(description="Weigh a parcel on the scales.")
    async def weigh_parcel(self, number: str) -> dict[str, str]:
        if number == "0":
            raise ValueError("There is no parcel 0.")
        return {"number": number, "weight": "3 kg"}


FIND_REFUND = call("toolscout-tool_search", queries=["refund an order"], limit=1)
FIND_SCALES = call("toolscout-tool_search", queries=["weigh a parcel"], limit=1)


def do(name: str, **arguments: object) -> Any:
    return call("toolscout-tool_call", name=name, arguments=arguments)


def shop_agent(provider: Provider, **options: Any) -> ChatCompletionAgent:
    return agent_of(provider.base_url, ToolScoutPlugin([Shop()], **options))


def results_in(provider: Provider) -> list[str]:
    return list(provider.requests[-1].tool_results.values())


def test_filters_of_the_kernel_see_the_function_that_tool_call_runs():
    seen: list[str] = []

    async def watch(context: Any, next: Callable[[Any], Awaitable[None]]) -> None:  # noqa: A002
        await next(context)
        kind = "auto" if isinstance(context, AutoFunctionInvocationContext) else "call"
        assert isinstance(context, AutoFunctionInvocationContext | FunctionInvocationContext)
        seen.append(f"{kind} {context.function.fully_qualified_name}")

    with Provider([FIND_REFUND, do("Shop-refund_order", order="A-7"), "Done."]) as provider:
        agent = shop_agent(provider)
        add_filter(agent, "auto_function_invocation", watch)
        add_filter(agent, "function_invocation", watch)
        Conversation(agent).ask("Refund A-7.")

    assert seen[2:] == [
        "call Shop-refund_order",
        "auto Shop-refund_order",
        "call toolscout-tool_call",
        "auto toolscout-tool_call",
    ]
    assert seen[:2] == ["call toolscout-tool_search", "auto toolscout-tool_search"]


def test_a_filter_that_asks_a_person_is_asked_by_the_functions_own_name_and_may_say_no():
    async def approve(
        context: AutoFunctionInvocationContext,
        next: Callable[[AutoFunctionInvocationContext], Awaitable[None]],  # noqa: A002
    ) -> None:
        if context.function.fully_qualified_name != "Shop-refund_order":
            await next(context)
        elif context.function_result is not None:
            asked = context.function_call_content
            assert asked is not None
            context.function_result.value = f"Denied: {asked.name} {asked.arguments}."

    with Provider([FIND_REFUND, do("Shop-refund_order", order="A-7"), "Denied."]) as provider:
        agent = shop_agent(provider)
        add_filter(agent, "auto_function_invocation", approve)
        Conversation(agent).ask("Refund A-7.")

    assert results_in(provider)[-1] == "Denied: Shop-refund_order {'order': 'A-7'}."


def test_a_filter_that_ends_the_run_at_a_function_ends_it_behind_tool_call():
    async def stop(
        context: AutoFunctionInvocationContext,
        next: Callable[[AutoFunctionInvocationContext], Awaitable[None]],  # noqa: A002
    ) -> None:
        await next(context)
        if context.function.name == "refund_order":
            context.terminate = True

    with Provider([FIND_REFUND, do("Shop-refund_order", order="A-7")]) as provider:
        agent = shop_agent(provider)
        add_filter(agent, "auto_function_invocation", stop)
        last = asyncio.run(last_message(agent, "Refund A-7."))

    [result] = [item for item in last.items if isinstance(item, FunctionResultContent)]
    assert result.result == "A-7 is refunded by nobody."
    assert len(provider.requests) == 2


async def last_message(agent: ChatCompletionAgent, message: str) -> ChatMessageContent:
    return (await agent.get_response(message)).message


def test_arguments_that_the_host_gives_reach_the_function():
    with Provider([FIND_REFUND, do("Shop-refund_order", order="A-7"), "Done."]) as provider:
        agent = shop_agent(provider)
        given = KernelArguments(shop="Ada")
        asyncio.run(answered(agent.get_response("Refund A-7.", arguments=given)))

    assert results_in(provider)[-1] == "A-7 is refunded by Ada."


async def answered(reply: Awaitable[object]) -> str:
    return str(await reply)


def test_a_failing_function_is_reported_and_the_conversation_goes_on():
    script = [FIND_SCALES, do("Shop-weigh_parcel", number="0")]
    script += [do("Shop-weigh_parcel", number=7), "3 kg."]
    with Provider(script) as provider:
        Conversation(shop_agent(provider)).ask("Weigh it.")

    _, failed, weighed = results_in(provider)
    assert "There is no parcel 0." in failed
    assert "'weight': '3 kg'" in weighed or '"weight": "3 kg"' in weighed


def test_the_session_is_in_the_results_of_the_meta_tools_and_nowhere_else():
    with Provider([FIND_REFUND, "Found."]) as provider:
        conversation = Conversation(shop_agent(provider))
        conversation.ask("Find it.")

    kept = json.loads(conversation.history.serialize())["messages"]
    [state] = [item["metadata"][STATE] for one in kept for item in one["items"] if "result" in item]
    assert [entry["name"] for entry in state["entries"]] == ["Shop-refund_order"]
    assert "entries" not in json.dumps(provider.requests[-1].body["messages"])


def test_what_was_found_while_another_call_went_on_is_kept():
    found = asyncio.Event()

    @kernel_function
    async def wait_for_the_search(minutes: int) -> str:
        """Wait in the queue."""
        await found.wait()
        return "Waited."

    async def watch(
        context: AutoFunctionInvocationContext,
        next: Callable[[AutoFunctionInvocationContext], Awaitable[None]],  # noqa: A002
    ) -> None:
        await next(context)
        if "order" in str(context.arguments):
            found.set()

    queue = call("toolscout-tool_search", queries=["wait in the queue"], limit=1)
    both = [do("wait_for_the_search", minutes=1), FIND_REFUND]
    with Provider([queue, both, do("Shop-refund_order", order="A-7"), "Done."]) as provider:
        agent = agent_of(provider.base_url, ToolScoutPlugin([Shop(), wait_for_the_search]))
        add_filter(agent, "auto_function_invocation", watch)
        Conversation(agent).ask("Wait, and refund A-7.")

    assert results_in(provider)[-1] == "A-7 is refunded by nobody."


def test_the_conversation_starts_fresh_if_its_history_was_cut():
    script = [FIND_REFUND, "Found.", do("Shop-refund_order", order="A-7"), "Not done."]
    with Provider(script) as provider:
        agent = shop_agent(provider)
        Conversation(agent).ask("Find it.")
        Conversation(agent, ChatHistory(system_message="We found something.")).ask("Refund it.")

    assert "select:Shop-refund_order" in results_in(provider)[-1]


def test_a_kernel_without_an_agent_and_a_clone_of_it_have_the_tools_too():
    async def ask(kernel: Kernel, provider: Provider) -> str:
        service = service_at(provider.base_url)
        settings = OpenAIChatPromptExecutionSettings(function_choice_behavior=automatic())
        history = ChatHistory()
        history.add_user_message("Refund A-7.")
        reply = await service.get_chat_message_content(history, settings, kernel=kernel)
        return str(reply)

    kernel = Kernel()
    kernel.add_plugin(ToolScoutPlugin([Shop()]))
    for one in (kernel, kernel.clone()):
        with Provider([FIND_REFUND, do("Shop-refund_order", order="A-7"), "Done."]) as provider:
            said = asyncio.run(ask(one, provider))

        assert (said, results_in(provider)[-1]) == ("Done.", "A-7 is refunded by nobody.")


def test_plugins_functions_and_whole_kernels_can_be_hidden():
    plugin = KernelPlugin.from_object("first", Shop())
    kernel = Kernel()
    kernel.add_plugin(Shop(), "second")
    scout = Scout(Catalog())
    ToolScoutPlugin([plugin, kernel, Shop(), Shop().refund_order], scout=scout)

    names = [f"{name}-{one}" for name in ("Shop", "first", "second") for one in METHODS]
    assert {tool.name for tool in scout.catalog.tools} == {*names, "refund_order"}


METHODS = ("refund_order", "weigh_parcel")


def test_pinned_functions_are_declared_under_their_own_names():
    settings = Settings(pins=("Shop-refund_order",))
    with Provider([call("Shop-refund_order", order="A-7"), "Done."]) as provider:
        Conversation(shop_agent(provider, settings=settings)).ask("Refund A-7.")

    assert len(provider.requests[0].tool_names) == 4
    assert results_in(provider) == ["A-7 is refunded by nobody."]


def test_tools_of_the_scouts_other_servers_are_found_and_run_by_their_executors():
    far = toolscout.Tool.define("count_stars", server="sky", description="Count the stars.")
    scout = Scout(
        Catalog({"sky": [far]}), executors={"sky": lambda tool, arguments: f"{tool.leaf}: 7"}
    )
    script = [call("toolscout-tool_search", queries=["count the stars"], limit=1)]
    with Provider([*script, do("sky__count_stars"), "Seven."]) as provider:
        Conversation(shop_agent(provider, scout=scout)).ask("How many?")

    assert results_in(provider)[-1] == "count_stars: 7"


def test_what_cannot_work_is_refused_with_what_to_do():
    with pytest.raises(UsageError, match="Use 'bridge'"):
        ToolScoutPlugin([Shop()], settings=Settings(mode=toolscout.Mode.NATIVE))
    with pytest.raises(UsageError, match="@kernel_function"):
        ToolScoutPlugin([object()])


def test_a_meta_tool_that_no_model_called_says_how_it_is_called():
    kernel = Kernel()
    kernel.add_plugin(ToolScoutPlugin([Shop()]))

    async def invoke() -> None:
        await kernel.invoke(plugin_name="toolscout", function_name="tool_search", queries=["x"])

    with pytest.raises(KernelInvokeException) as raised:
        asyncio.run(invoke())

    assert "FunctionChoiceBehavior.Auto" in str(raised.value.__cause__)


def test_the_parts_of_the_sdk_on_which_the_adapter_rests_are_there():
    method = kernel_function(name="one")(Shop().refund_order.__func__)  # type: ignore[attr-defined]
    missing = {name for name in ("__kernel_function_parameters__",) if not hasattr(method, name)}
    missing |= {"added_to_kernel"} - set(vars(AddToKernelCallbackProtocol))
    missing |= {"method"} - set(KernelFunctionFromMethod.model_fields)

    assert not missing, f"semantic-kernel has changed; the adapter needs another way for {missing}."


def test_the_example_runs_as_it_is_written():
    find = call("toolscout-tool_search", queries=["refund an order"])
    with Provider([find, do("refund_order", order="A-7"), "It is refunded."]) as provider:
        said = run_example("semantic_kernel_agent.py", provider.base_url)

    assert said == "It is refunded.\n"
    assert "A-7 is refunded." in results_in(provider)[-1]
    assert is_on_page("semantic_kernel_agent.py", "semantic_kernel.md")
