"""`CLIENTS`: the MCP clients that toolscout knows, one row for each.

A row says where a client keeps its servers and what an entry for toolscout looks like there. To
add a client, add a row and a sample file to its tests; the choices of `--client`, the checks of
`doctor` and the table in `docs/gateway.md` follow. `config.formats` translates what the entries
of other programs say (and lists the keys under which they stand); `discovery` turns the places
into paths.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from toolscout.schemas import Json

Keys = tuple[str, ...]

_STORAGE = "{settings}/Code/User/globalStorage"


@dataclass(frozen=True, slots=True, kw_only=True)
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

    def build_entry(self, command: str, args: tuple[str, ...]) -> Json:
        """Return the entry that makes this client start a program."""
        if self.joins_command:
            return {**self.extra, "command": [command, *args]}
        key = "cmd" if "cmd" in self.extra else "command"
        return {**self.extra, key: command, "args": list(args)}


CLIENTS = (
    Client(
        name="claude-desktop",
        title="Claude Desktop",
        files=("{settings}/Claude/claude_desktop_config.json",),
    ),
    Client(
        name="claude-code",
        title="Claude Code",
        files=("{claude}/.claude.json",),
        project_files=(".mcp.json",),
        extra={"type": "stdio"},
    ),
    Client(
        name="cursor",
        title="Cursor",
        files=("{home}/.cursor/mcp.json",),
        project_files=(".cursor/mcp.json",),
    ),
    Client(
        name="vscode",
        title="VS Code",
        files=(
            "{settings}/Code/User/mcp.json",
            "{settings}/Code/User/settings.json",
            "{settings}/Code - Insiders/User/mcp.json",
            "{settings}/Code - Insiders/User/settings.json",
        ),
        project_files=(".vscode/mcp.json",),
        keys=("servers",),
        extra={"type": "stdio"},
    ),
    Client(
        name="codex",
        title="Codex",
        files=("{codex}/config.toml",),
        project_files=(".codex/config.toml",),
        keys=("mcp_servers",),
    ),
    Client(name="windsurf", title="Windsurf", files=("{home}/.codeium/windsurf/mcp_config.json",)),
    Client(
        name="opencode",
        title="OpenCode",
        files=("{config}/opencode/opencode.json", "{config}/opencode/opencode.jsonc"),
        project_files=("opencode.json", "opencode.jsonc", ".opencode/opencode.json"),
        keys=("mcp",),
        extra={"type": "local"},
        joins_command=True,
    ),
    Client(
        name="gemini-cli",
        title="Gemini CLI",
        files=("{home}/.gemini/settings.json",),
        project_files=(".gemini/settings.json",),
    ),
    Client(
        name="copilot-cli",
        title="Copilot CLI",
        files=("{copilot}/mcp-config.json",),
        extra={"type": "local", "tools": ["*"]},
    ),
    Client(
        name="zed",
        title="Zed",
        files=("{config}/zed/settings.json", "{settings}/Zed/settings.json"),
        project_files=(".zed/settings.json",),
        keys=("context_servers",),
    ),
    Client(
        name="cline",
        title="Cline",
        files=(
            f"{_STORAGE}/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
            "{home}/.cline/data/settings/cline_mcp_settings.json",
        ),
    ),
    Client(
        name="roo",
        title="Roo Code",
        files=(f"{_STORAGE}/rooveterinaryinc.roo-cline/settings/mcp_settings.json",),
        project_files=(".roo/mcp.json",),
    ),
    Client(
        name="kiro",
        title="Kiro",
        files=("{home}/.kiro/settings/mcp.json",),
        project_files=(".kiro/settings/mcp.json",),
    ),
    Client(name="lm-studio", title="LM Studio", files=("{home}/.lmstudio/mcp.json",)),
    Client(
        name="amp",
        title="Amp",
        files=("{home}/.config/amp/settings.json", "{home}/.config/amp/settings.jsonc"),
        project_files=(".amp/settings.json", ".amp/settings.jsonc"),
        keys=("amp.mcpServers",),
    ),
    Client(
        name="junie",
        title="JetBrains Junie",
        files=("{home}/.junie/mcp/mcp.json",),
        project_files=(".junie/mcp/mcp.json",),
    ),
    Client(
        name="goose",
        title="Goose",
        files=("{config}/goose/config.yaml", "{settings}/Block/goose/config/config.yaml"),
        keys=("extensions",),
        extra={"name": "toolscout", "type": "stdio", "enabled": True, "cmd": "", "timeout": 300},
        is_yaml=True,
    ),
    Client(
        name="continue",
        title="Continue",
        files=("{home}/.continue/config.yaml",),
        extra={"name": "toolscout"},
        is_yaml=True,
    ),
)


def find_client(program: str) -> Client:
    """Return the client with this name or title; one without a name is any other program."""
    found = (one for one in CLIENTS if program in (one.name, one.title))
    return next(found, Client(name="", title="", files=()))
