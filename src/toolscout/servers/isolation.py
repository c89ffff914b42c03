"""Limit what the process of a server can reach: `prepare_launch` returns how it is started.

On Linux, every server runs without new privileges and with a temporary folder of its own. On
request it also has resource limits, or runs in bubblewrap or in a container, where it sees the
system read-only and the listed folders. What cannot be done raises `IsolationFailed`, and the
server does not start. Programs such as `setpriv` do the work: code between fork and exec would not
be safe in a process with threads.
"""

import csv
import io
import os
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from toolscout.config.servers import READ_ONLY, Isolation, ServerConfig
from toolscout.errors import IsolationFailed

IS_LINUX = sys.platform == "linux"
TRIAL_SECONDS = 10.0
TEMP_VARIABLES = ("TMPDIR", "TEMP", "TMP")
INNER_TEMP = "/tmp"  # inside the sandbox, where nobody else is
MEGABYTE = 1 << 20

SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store")
"""Programs and libraries, which a server in bubblewrap sees read-only."""
SYSTEM_SETTINGS = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")
SYSTEM_FILES = " ".join(
    (
        "alternatives ca-certificates ca-certificates.conf crypto-policies fonts gai.conf group",
        "host.conf hosts java-* ld.so.cache ld.so.conf ld.so.conf.d localtime mime.types",
        "nsswitch.conf os-release passwd pki protocols python3* resolv.conf services ssl timezone",
    )
).split()
"""What a server in bubblewrap sees of /etc: nothing that holds secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a process is started, and what is left to do after its end."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    cleanup: tuple[str, ...] = ()
    """A command that ends what outlives the process; empty if nothing does."""


def prepare_launch(config: ServerConfig, env: Mapping[str, str], folder: Path | None) -> Launch:
    """Return how to start a server whose variables are `env`.

    `folder` is for its temporary files, where the system gives it one. It may block.
    """
    _check_platform(config)
    match config.isolate:
        case Isolation.BWRAP:
            launch = _prepare_bwrap(config, env, folder or Path(os.devnull))
        case Isolation.DOCKER:
            return _prepare_docker(config, env)
        case _:
            launch = _prepare_plain(config, env, folder)
    limits = tuple(_list_limits(config))
    if limits:
        program = _find_tool("prlimit", "limits", "Install util-linux.")
        command = (program, *limits, "--", *launch.command)
        launch = Launch(command=command, env=launch.env, cwd=launch.cwd)
    return launch


def make_folders(config: ServerConfig, parent: Path) -> Path | None:
    """Make a folder for the temporary files of a server, if it gets one of its own."""
    is_named = any(name in config.env for name in TEMP_VARIABLES) and not config.isolate
    if not IS_LINUX or is_named or config.isolate is Isolation.DOCKER:
        return None
    folder = Path(tempfile.mkdtemp(prefix="", dir=parent))
    if config.isolate:
        for name in ("home", "tmp"):
            (folder / name).mkdir(mode=0o700)
    return folder


def check_isolation(config: ServerConfig, env: Mapping[str, str]) -> str:
    """Start nothing of the server; return what its isolation uses, or raise `IsolationFailed`."""
    launch = prepare_launch(config, env, None)
    match config.isolate:
        case Isolation.BWRAP:
            program = _find_tool("bwrap", "isolate", INSTALL_BWRAP)
            trial = [program, "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "true"]
            remedy = "Allow user namespaces without privileges, or use isolate = 'docker'."
        case Isolation.DOCKER:
            trial = [launch.command[0], "version"]
            remedy = "Start Docker, and check that you may use it."
        case _:
            return ""
    try:
        done = subprocess.run(trial, capture_output=True, text=True, timeout=TRIAL_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise IsolationFailed("isolate", f"{trial[0]} does not answer ({error})", remedy) from None
    if done.returncode:
        said = done.stderr.strip() or f"exit code {done.returncode}"
        raise IsolationFailed("isolate", f"{trial[0]} does not work here ({said})", remedy)
    return f"in {config.isolate}"


def find_privilege_program() -> str:
    """Return the program that takes the right to new privileges away, if there is one."""
    return (shutil.which("setpriv") or "") if IS_LINUX else ""


INSTALL_BWRAP = "Install bubblewrap, for example with `apt install bubblewrap`."


def _check_platform(config: ServerConfig) -> None:
    if config.isolate is Isolation.BWRAP and not IS_LINUX:
        remedy = "Use isolate = 'docker', or run toolscout on Linux."
        raise IsolationFailed("isolate", "bubblewrap exists only for Linux", remedy)
    if config.isolate and sys.platform == "win32":
        remedy = "Run toolscout in WSL, or leave 'isolate' out."
        raise IsolationFailed("isolate", "toolscout cannot do this on Windows", remedy)
    if config.limits and not config.isolate and not IS_LINUX:
        remedy = "Leave 'limits' out, or use isolate = 'docker'."
        raise IsolationFailed("limits", "this system cannot limit a process", remedy)


def _find_tool(name: str, option: str, remedy: str) -> str:
    # From our own PATH: that of a server may be meant for inside the sandbox.
    found = shutil.which(name)
    if found is None:
        raise IsolationFailed(option, f"{name} is not installed", remedy)
    return found


def _find_program(config: ServerConfig, env: Mapping[str, str]) -> str:
    """Return the file of a command, as the system finds it; raise what the system would raise."""
    is_path = os.sep in config.command
    command = str(Path(config.cwd, config.command).absolute()) if is_path else config.command
    found = shutil.which(command, path=env.get("PATH", os.defpath))
    if found is not None:
        return str(Path(found).absolute())
    if is_path and Path(command).exists():
        raise PermissionError(config.command)
    raise FileNotFoundError(config.command)


def _prepare_plain(config: ServerConfig, env: Mapping[str, str], folder: Path | None) -> Launch:
    command = (config.command, *config.args)
    setpriv = "" if config.new_privileges else find_privilege_program()
    if setpriv:
        program = _find_program(config, env)
        if not _needs_privileges(program):
            command = (setpriv, "--no-new-privs", "--", config.command, *config.args)
    own = {} if folder is None else {name: str(folder) for name in TEMP_VARIABLES}
    return Launch(command=command, env={**env, **own, **config.env}, cwd=config.cwd)


def _needs_privileges(program: str) -> bool:
    """Tell whether a program is one that cannot work without new privileges.

    Whoever configures `sudo`, or a program from a snap, wants them.
    """
    target = Path(program).resolve()
    is_special = target.stat().st_mode & (stat.S_ISUID | stat.S_ISGID)
    return bool(is_special) or target.name == "snap"


def _list_limits(config: ServerConfig) -> Iterator[str]:
    # Not the size of the address space: Node and browsers reserve far more than they use.
    for name, value in config.limits.items():
        match name:
            case "memory_mb":
                yield f"--data={value * MEGABYTE}"
            case "open_files":
                yield f"--nofile={value}"
            case _:
                yield f"--nproc={value}"


# Folders.


def _read_folders(config: ServerConfig) -> dict[str, bool]:
    """Return the listed folders and whether a server may write there, outer ones first."""
    found: dict[str, bool] = {}
    for text in config.folders:
        path = text.removesuffix(READ_ONLY)
        if not Path(path).is_absolute() or not Path(path).exists():
            remedy = "Create it, or remove it from the list."
            raise IsolationFailed("folders", "one of them does not exist", remedy, path)
        found[os.path.normpath(path)] = not text.endswith(READ_ONLY)
    return dict(sorted(found.items()))


def _is_inside(path: str, folders: Iterable[str]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)


def _check_visible(path: str, what: str, folders: Iterable[str]) -> None:
    if not _is_inside(path, folders):
        remedy = "Add the folders that it needs; `toolscout doctor` names the path."
        raise IsolationFailed("folders", f"{what} is outside of all folders", remedy, path)


# Bubblewrap.


def _prepare_bwrap(config: ServerConfig, env: Mapping[str, str], folder: Path) -> Launch:
    bwrap = _find_tool("bwrap", "isolate", INSTALL_BWRAP)
    folders = _read_folders(config)
    program = _find_program(config, env)
    system = [path for path in SYSTEM_FOLDERS if Path(path).exists()]
    for path in (program, str(Path(program).resolve())):
        _check_visible(path, "its program", (*system, *folders))
    home = env.get("HOME", "")
    home = home if Path(home).is_absolute() and Path(home).parts[1:] else "/home/server"
    if config.cwd:
        _check_visible(str(Path(config.cwd).absolute()), "its 'cwd'", (*system, *folders))
    command = [bwrap, "--die-with-parent", "--unshare-user", "--unshare-pid", "--unshare-ipc"]
    command += ["--unshare-uts", "--unshare-cgroup-try", "--cap-drop", "ALL"]
    command += [] if config.network else ["--unshare-net"]
    for path in (*system, *_list_system_files()):
        command += ["--ro-bind", path, path]
    command += ["--proc", "/proc", "--dev", "/dev"]
    # Root could change settings of the whole system there, even without any capability.
    for path in (path for path in SYSTEM_SETTINGS if Path(path).exists()):
        command += ["--ro-bind", path, path]
    command += ["--bind", str(folder / "tmp"), INNER_TEMP, "--bind", str(folder / "home"), home]
    for path, is_writable in folders.items():
        command += ["--bind" if is_writable else "--ro-bind", path, path]
    command += ["--remount-ro", "/", "--chdir", config.cwd or home, "--"]
    inner = dict.fromkeys(TEMP_VARIABLES, INNER_TEMP) | {"HOME": home}
    return Launch(
        command=(*command, program, *config.args),
        env={**env, **inner, **config.env},
        cwd="/",
    )


def _list_system_files() -> list[str]:
    found = [path for name in SYSTEM_FILES for path in Path("/etc").glob(name)]
    return sorted(str(path) for path in found if path.exists())


# Docker.


def _prepare_docker(config: ServerConfig, env: Mapping[str, str]) -> Launch:
    docker = _find_tool("docker", "isolate", "Install Docker, or use isolate = 'bwrap' on Linux.")
    name = f"toolscout-{secrets.token_hex(8)}"
    command = [docker, "run", "--rm", "--interactive", "--init", "--name", name, "--read-only"]
    command += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    command += ["--user", f"{os.getuid()}:{os.getgid()}"]
    command += ["--tmpfs", f"{INNER_TEMP}:exec,mode=1777", "--env", f"HOME={INNER_TEMP}"]
    command += [] if config.network else ["--network", "none"]
    for limit, value in config.limits.items():
        match limit:
            case "memory_mb":
                command += ["--memory", f"{value}m", "--memory-swap", f"{value}m"]
            case "open_files":
                command += ["--ulimit", f"nofile={value}"]
            case _:
                command += ["--pids-limit", str(value)]
    for path, is_writable in _read_folders(config).items():
        mount = ["type=bind", f"source={path}", f"target={path}"]
        command += ["--mount", _join_fields(mount if is_writable else [*mount, "readonly"])]
    # Names alone: Docker takes the values from its own environment, where `ps` does not show them.
    for variable in sorted({*config.env, *config.find_inherited(env)}):
        command += ["--env", variable]
    command += ["--workdir", config.cwd] if config.cwd else []
    return Launch(
        command=(*command, config.image, config.command, *config.args),
        env=dict(env),
        cwd="/",
        cleanup=(docker, "rm", "--force", name),
    )


def _join_fields(fields: list[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(fields)
    return text.getvalue()
