"""`CLIENTS`: the MCP clients that toolscout knows, one row for each.

A row says where a client keeps its servers and what an entry for toolscout looks like there. To
add a client, add a row and a sample file to its tests; the choices of `--client`, the checks of
`doctor` and the pages `docs/clients.md` and `docs/gateway.md` follow. `config.formats` translates
what the entries of other programs say (and lists the keys under which they stand); `discovery`
turns the places into paths.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from toolscout.schemas import Json

Keys = tuple[str, ...]

_STORAGE = "{settings}/Code/User/globalStorage"


@dataclass(frozen=True, slots=True)
class Client:
    """Where a program keeps its servers.

    Places begin with `{home}`, `{settings}` (for desktop programs), `{config}` (`~/.config`),
    `{claude}`, `{codex}` or `{copilot}`, which variables may move. Those of other systems simply
    do not exist.
    """

    name: str
    """As `--client` has it."""
    title: str
    files: tuple[str, ...]
    """The user's own files."""
    project_files: tuple[str, ...] = ()
    """Files in the working folder, which a repository may contain."""
    keys: Keys = ("mcpServers",)
    """Where toolscout's entry goes if the file lists no servers yet."""
    extra: Mapping[str, object] = field(default_factory=dict[str, object])
    """What an entry has besides its command."""
    joins_command: bool = False
    """Whether command and arguments are one list."""
    is_yaml: bool = False
    """Whether the file is YAML, which toolscout reads but does not rewrite."""
    adds_with: str = ""
    """The command of the client that adds a server, if it has one, with `{command}` for the command
    that starts the server, or `{entry}` for all of it as JSON."""

    def build_entry(self, command: str, args: tuple[str, ...]) -> Json:
        """Return the entry that makes this client start a program."""
        if self.joins_command:
            return {**self.extra, "command": [command, *args]}
        key = "cmd" if "cmd" in self.extra else "command"
        return {**self.extra, key: command, "args": list(args)}


CLIENTS = (
    Client("claude-desktop", "Claude Desktop", ("{settings}/Claude/claude_desktop_config.json",)),
    Client(
        "claude-code",
        "Claude Code",
        ("{claude}/.claude.json",),
        (".mcp.json",),
        extra={"type": "stdio"},
        adds_with="claude mcp add --scope user toolscout -- {command}",
    ),
    Client("cursor", "Cursor", ("{home}/.cursor/mcp.json",), (".cursor/mcp.json",)),
    Client(
        "vscode",
        "VS Code",
        (
            "{settings}/Code/User/mcp.json",
            "{settings}/Code/User/settings.json",
            "{settings}/Code - Insiders/User/mcp.json",
            "{settings}/Code - Insiders/User/settings.json",
        ),
        (".vscode/mcp.json",),
        keys=("servers",),
        extra={"type": "stdio"},
        adds_with="code --add-mcp {entry}",
    ),
    Client(
        "codex",
        "Codex",
        ("{codex}/config.toml",),
        (".codex/config.toml",),
        keys=("mcp_servers",),
        adds_with="codex mcp add toolscout -- {command}",
    ),
    Client("windsurf", "Windsurf", ("{home}/.codeium/windsurf/mcp_config.json",)),
    Client(
        "opencode",
        "OpenCode",
        ("{config}/opencode/opencode.json", "{config}/opencode/opencode.jsonc"),
        ("opencode.json", "opencode.jsonc", ".opencode/opencode.json"),
        keys=("mcp",),
        extra={"type": "local"},
        joins_command=True,
    ),
    Client(
        "gemini-cli",
        "Gemini CLI",
        ("{home}/.gemini/settings.json",),
        (".gemini/settings.json",),
        adds_with="gemini mcp add --scope user toolscout {command}",
    ),
    Client(
        "copilot-cli",
        "Copilot CLI",
        ("{copilot}/mcp-config.json",),
        extra={"type": "local", "tools": ["*"]},
        adds_with="copilot mcp add toolscout -- {command}",
    ),
    Client(
        "zed",
        "Zed",
        ("{config}/zed/settings.json", "{settings}/Zed/settings.json"),
        (".zed/settings.json",),
        keys=("context_servers",),
    ),
    Client(
        "cline",
        "Cline",
        (
            f"{_STORAGE}/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
            "{home}/.cline/data/settings/cline_mcp_settings.json",
        ),
    ),
    Client(
        "roo",
        "Roo Code",
        (f"{_STORAGE}/rooveterinaryinc.roo-cline/settings/mcp_settings.json",),
        (".roo/mcp.json",),
    ),
    Client("kiro", "Kiro", ("{home}/.kiro/settings/mcp.json",), (".kiro/settings/mcp.json",)),
    Client("lm-studio", "LM Studio", ("{home}/.lmstudio/mcp.json",)),
    Client(
        "amp",
        "Amp",
        ("{home}/.config/amp/settings.json", "{home}/.config/amp/settings.jsonc"),
        (".amp/settings.json", ".amp/settings.jsonc"),
        keys=("amp.mcpServers",),
    ),
    Client("junie", "JetBrains Junie", ("{home}/.junie/mcp/mcp.json",), (".junie/mcp/mcp.json",)),
    Client(
        "goose",
        "Goose",
        ("{config}/goose/config.yaml", "{settings}/Block/goose/config/config.yaml"),
        keys=("extensions",),
        extra={"name": "toolscout", "type": "stdio", "enabled": True, "cmd": "", "timeout": 300},
        is_yaml=True,
    ),
    Client(
        "continue",
        "Continue",
        ("{home}/.continue/config.yaml",),
        extra={"name": "toolscout"},
        is_yaml=True,
    ),
)


def find_client(program: str) -> Client:
    """Return the client with this name or title; one without a name is any other program."""
    found = (one for one in CLIENTS if program in (one.name, one.title))
    return next(found, Client("", "", ()))
