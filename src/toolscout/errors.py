"""Every error of toolscout, grouped by who reads it.

    ToolscoutError
    ├── UsageError           read by the developer or operator
    │   ├── InvalidTool      a definition cannot be catalogued
    │   ├── DuplicateTool    two tools ask for one exposed name
    │   ├── InvalidFile      a file of tools, queries or vectors cannot be read
    │   ├── InvalidEncoder   an encoder gave something other than vectors
    │   └── MissingExtra     an optional dependency is not installed
    └── ModelError           read by the model, as a tool result flagged as error
        ├── InvalidQuery     a query that cannot be read; carries what to write instead
        └── UnknownServer    `server:` names none that exists; carries near names

An error carries its facts as attributes and builds its own message, so that every place
says it the same way: what happened, what was expected, what to do next.
"""

from collections.abc import Sequence


class ToolscoutError(Exception):
    """Anything that toolscout raises on purpose."""


class UsageError(ToolscoutError):
    """A mistake that the developer or operator can put right."""


class InvalidTool(UsageError):
    """A definition that cannot be catalogued."""

    def __init__(self, problem: str, *, server: str, tool: str, remedy: str) -> None:
        self.problem, self.server, self.tool, self.remedy = problem, server, tool, remedy
        super().__init__(f"Tool {tool!r} of server {server!r} {problem}. {remedy}")


class DuplicateTool(UsageError):
    """Two tools that ask for one exposed name."""

    def __init__(self, name: str, *, first: tuple[str, str], second: tuple[str, str]) -> None:
        self.name, self.first, self.second = name, first, second
        super().__init__(
            f"The exposed name {name!r} is asked for by {first[1]!r} of server {first[0]!r} "
            f"and by {second[1]!r} of server {second[0]!r}. Rename one of them or its server."
        )


class InvalidFile(UsageError):
    """A file that cannot be read as what it should hold."""

    def __init__(self, path: str, problem: str, *, line: int | None = None, remedy: str) -> None:
        self.path, self.problem, self.line, self.remedy = path, problem, line, remedy
        where = path if line is None else f"{path}, line {line}"
        super().__init__(f"{where}: {problem}. {remedy}")


class InvalidEncoder(UsageError):
    """An encoder whose answer is not one finite vector of the same length for each text."""

    def __init__(self, encoder: str, problem: str, *, remedy: str) -> None:
        self.encoder, self.problem, self.remedy = encoder, problem, remedy
        super().__init__(f"Encoder {encoder!r} {problem}. {remedy}")


class MissingExtra(UsageError):
    """An optional dependency that is not installed."""

    def __init__(self, module: str, *, extra: str) -> None:
        self.module, self.extra = module, extra
        wanted = f"'toolscout[{extra}]'" if extra else "--force-reinstall toolscout"
        super().__init__(f"{module!r} is not installed. Run `pip install {wanted}`.")


class ModelError(ToolscoutError):
    """A mistake that the model can put right; its text holds no path, host or secret."""


class InvalidQuery(ModelError):
    """A query that cannot be read."""

    def __init__(self, problem: str, *, remedy: str) -> None:
        self.problem, self.remedy = problem, remedy
        super().__init__(f"{problem}. {remedy}")


class UnknownServer(ModelError):
    """A `server:` filter that names no catalogued server."""

    def __init__(self, server: str, near: Sequence[str]) -> None:
        self.server, self.near = server, tuple(near)
        super().__init__(
            f"There is no server {server!r}. "
            + (f"Near: {', '.join(self.near)}." if self.near else "Leave `server:` out.")
        )
