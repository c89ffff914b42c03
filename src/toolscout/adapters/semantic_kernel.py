"""Semantic Kernel: a plugin with the three meta-tools in place of plugins that stay hidden.

`kernel.add_plugin(ToolScoutPlugin([…]))`, or `plugins=[…]` of an agent. Hidden functions run with
the kernel's filters, including those for calls that a model makes. The session lives in the
metadata of the meta-tools' results, so it follows the chat history and ends where that is cut.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Unpack, cast

from toolscout import Reply, Session, Tool
from toolscout.adapters._toolkit import (
    PLUGIN_DESCRIPTION,
    RESERVED_NAMES,
    TOOL_FAILED,
    ApprovedCall,
    Bridge,
    Json,
    ToolkitOptions,
    add_notes,
    is_made,
    merge_states,
)
from toolscout.errors import NO_CONTENT, MissingExtra, UsageError

try:
    from semantic_kernel import Kernel
    from semantic_kernel.connectors.ai.function_calling_utils import (
        kernel_function_metadata_to_function_call_format,
    )
    from semantic_kernel.contents import (
        AuthorRole,
        ChatHistory,
        FunctionCallContent,
        FunctionResultContent,
    )
    from semantic_kernel.filters import AutoFunctionInvocationContext, FilterTypes
    from semantic_kernel.functions import (
        FunctionResult,
        KernelArguments,
        KernelFunction,
        KernelFunctionFromMethod,
        KernelPlugin,
        kernel_function,
    )
except ModuleNotFoundError as error:
    raise MissingExtra("semantic_kernel", extra="semantic-kernel") from error

STATE = "toolscout"
"""The key of the session in the metadata of a result."""
_META_NAME = re.compile(rf"\b(?:{'|'.join(sorted(RESERVED_NAMES))})\b")
_Next = Callable[[AutoFunctionInvocationContext], Awaitable[None]]


class ToolScoutPlugin:
    """Hides functions behind `tool_search`, `tool_describe` and `tool_call`.

    Takes plugins, functions, objects with kernel functions, and whole kernels.
    """

    name = "toolscout"
    description = PLUGIN_DESCRIPTION

    def __init__(self, plugins: Iterable[object], **options: Unpack[ToolkitOptions]) -> None:
        functions = [function for plugin in plugins for function in _list_functions(plugin)]
        self._bridge = Bridge(functions, _define, **options)
        declared = self._bridge.list_declared()
        self._pinned = [native for _, native in declared if native is not None]
        # The kernel looks for functions among the attributes of a plugin.
        self._methods = [self._create_method(tool) for tool, native in declared if native is None]
        for method in self._methods:
            setattr(self, method.__name__, method)

    def added_to_kernel(self, kernel: Kernel) -> None:
        """Register with a kernel, which calls this when the plugin is added to it."""
        for native in self._pinned:
            kernel.add_function(native.plugin_name or self.name, native)

        async def pass_context(context: AutoFunctionInvocationContext, next: _Next) -> None:  # noqa: A002  # the SDK's name
            if getattr(context.function, "method", None) in self._methods:
                context.arguments = _ContextArguments(context)
            await next(context)

        cast("Any", kernel).add_filter(FilterTypes.AUTO_FUNCTION_INVOCATION, pass_context)

    def _create_method(self, tool: Tool) -> Callable[..., Awaitable[FunctionResult]]:
        async def answer(arguments: KernelArguments, **_: object) -> FunctionResult:
            if not isinstance(arguments, _ContextArguments):
                raise UsageError(
                    f"{tool.name} was called without a conversation. Let the kernel call it for "
                    "a model, with FunctionChoiceBehavior.Auto()."
                )
            given = cast("Json", arguments)
            names = tool.input_schema.get("properties", ())
            asked = {key: given[key] for key in names if key in given}
            return await self._answer(arguments.context, tool.name, asked)

        answer.__name__ = tool.name
        method = kernel_function(name=tool.name, description=tool.description)(answer)
        method.__kernel_function_parameters__ = _to_parameters(tool)
        return method

    async def _answer(
        self, context: AutoFunctionInvocationContext, name: str, asked: Json
    ) -> FunctionResult:
        session = self._bridge.open_session("chat", _read_state(context.chat_history))
        verdict = await self._bridge.handle(session, name, asked)
        if isinstance(verdict, ApprovedCall):
            value = await self._run_native(context, session, verdict)
        else:
            reply = cast("Reply", verdict)
            # The kernel has other names for the meta-tools; a tool's result stays unchanged.
            own_name = rf"{context.function.plugin_name}-\g<0>"
            value = reply.text if is_made(reply) else _META_NAME.sub(own_name, reply.text)
        state = {STATE: session.to_json()}
        return FunctionResult(function=context.function.metadata, value=value, metadata=state)

    async def _run_native(
        self, outer: AutoFunctionInvocationContext, session: Session, call: ApprovedCall
    ) -> object:
        """Make a call as the kernel makes a model's own calls, with all its filters."""
        native = self._bridge.get_native(call)
        inner = _create_context(outer, native, call.arguments)
        errors: list[Exception] = []

        async def invoke(context: AutoFunctionInvocationContext) -> None:
            # As in the kernel, filters see the error of a function that fails.
            try:
                done = await context.function.invoke(context.kernel, context.arguments)
            except Exception as error:
                errors.append(error)
                text = TOOL_FAILED.format(name=native.fully_qualified_name, error=error)
                done = FunctionResult(function=native.metadata, value=text)
            context.function_result = done

        stack = outer.kernel.construct_call_stack(FilterTypes.AUTO_FUNCTION_INVOCATION, invoke)
        await stack(inner)
        session.settle(call, failed=bool(errors))
        outer.terminate = outer.terminate or inner.terminate
        result = inner.function_result
        value = result.value if result is not None else None
        return add_notes(call, NO_CONTENT if value in (None, "") else value)


class _ContextArguments(KernelArguments):
    """The arguments of a meta-tool, and the call that they belong to."""

    def __init__(self, context: AutoFunctionInvocationContext) -> None:
        given = context.arguments
        super().__init__(settings=given.execution_settings, **given)
        self.context = context


def _create_context(
    outer: AutoFunctionInvocationContext, native: KernelFunction, arguments: Json
) -> AutoFunctionInvocationContext:
    """Return the context of the call inside a `tool_call`, with what the host adds to arguments."""
    added = cast("Json", outer.arguments).items()
    given = {key: value for key, value in added if key not in ("name", "arguments")} | arguments
    call = outer.function_call_content
    name = native.fully_qualified_name
    asked = FunctionCallContent(id=call and call.id, name=name, arguments=cast("Any", arguments))
    changed = {
        "function": native,
        "arguments": KernelArguments(settings=outer.arguments.execution_settings, **given),
        "function_call_content": asked,
        "function_result": FunctionResult(function=native.metadata, value=None),
        "terminate": False,
    }
    return outer.model_copy(update=changed)


def _list_functions(plugin: object) -> Iterator[KernelFunction]:
    if isinstance(plugin, Kernel):
        for one in plugin.plugins.values():
            yield from one.functions.values()
    elif isinstance(plugin, KernelFunction):
        yield plugin
    elif hasattr(plugin, "__kernel_function__"):
        yield KernelFunctionFromMethod(method=cast("Any", plugin))
    else:
        name = str(getattr(plugin, "name", type(plugin).__name__))
        if not isinstance(plugin, KernelPlugin):
            plugin = KernelPlugin.from_object(name, plugin)
        if not plugin.functions:
            raise UsageError(f"{name!r} has no kernel functions. Mark them with @kernel_function.")
        yield from plugin.functions.values()


def _define(function: KernelFunction) -> Tool:
    return Tool.from_openai(kernel_function_metadata_to_function_call_format(function.metadata))


def _to_parameters(tool: Tool) -> list[Json]:
    """Return the parameters of a meta-tool with unchanged schemas.

    The kernel passes all arguments of a call as `arguments`, so every meta-tool needs a parameter
    of that name. The model sees it only where it is a parameter of the meta-tool itself.
    """
    required = tool.input_schema.get("required", ())
    properties = cast("dict[str, Json]", tool.input_schema.get("properties", {}))
    own = [
        {
            "name": name,
            "description": one.get("description"),
            "is_required": name in required,
            "schema_data": one,
        }
        for name, one in properties.items()
    ]
    everything: Json = {"name": "arguments", "include_in_function_choices": False}
    return own if "arguments" in properties else [*own, everything]


def _read_state(history: ChatHistory | None) -> Json | None:
    """Return the session from the newest results."""
    states: list[object] = []
    for message in reversed(history.messages if history is not None else []):
        if message.role != AuthorRole.TOOL:
            if states:
                break
            continue
        results = [item for item in message.items if isinstance(item, FunctionResultContent)]
        ours = [one for one in results if one.function_name in RESERVED_NAMES]
        states[:0] = filter(None, (one.metadata.get(STATE) for one in ours))
    # Calls of one response start from the same state, and each adds to it.
    return merge_states(*states) if states else None
