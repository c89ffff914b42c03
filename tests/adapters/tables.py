"""The table of environments, read from `environments.toml`, and the files that belong to each."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
TABLE = HERE / "environments.toml"
LOCKS = HERE / "locks"
VENVS = ROOT / ".venv-adapters"
ADAPTERS = ROOT / "src" / "toolscout" / "adapters"
EXAMPLES = ROOT / "examples"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One SDK, and what its tests need."""

    name: str
    base: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    sdk: tuple[str, ...] = ()
    """Distributions whose versions the report shows."""
    imports: tuple[str, ...] = ()
    """Modules that must be importable."""
    warnings: tuple[str, ...] = ()
    adapter: bool = True
    """Whether toolscout has an adapter for it."""

    @property
    def module(self) -> str:
        """The adapter's name in Python."""
        return self.name.replace("-", "_")

    @property
    def lock(self) -> Path:
        """The exact versions."""
        return LOCKS / f"{self.name}.txt"

    @property
    def venv(self) -> Path:
        """Where it is installed."""
        return VENVS / self.name

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.venv / "bin" / "python"

    @property
    def sources(self) -> list[Path]:
        """The modules of the adapter; none where there is no adapter."""
        module, package = ADAPTERS / f"{self.module}.py", ADAPTERS / self.module
        return [module] if module.exists() else sorted(package.glob("*.py"))

    @property
    def tests(self) -> Path:
        """The adapter's tests."""
        return HERE / f"test_{self.module}.py"

    @property
    def examples(self) -> list[Path]:
        """The scripts that show it: `NAME.py` and `NAME_….py`."""
        return [path for path in sorted(EXAMPLES.glob("*.py")) if owner(path) == self.name]

    @property
    def files(self) -> list[Path]:
        """The files that the type checker reads in this environment."""
        found = [*self.sources, self.tests, *self.examples]
        return [path for path in found if path.exists()]


def environments() -> dict[str, Environment]:
    """Return all environments, by name."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    base = tuple(table["base"]["packages"])
    listed = cast("dict[str, dict[str, Any]]", table["environments"])
    return {name: _environment(name, base, entry) for name, entry in sorted(listed.items())}


def owner(example: Path) -> str:
    """Return the environment that an example needs, or an empty text.

    The longest name counts, so that `openai_agents.py` is not an example of `openai`.
    """
    names = tomllib.loads(TABLE.read_text(encoding="utf-8"))["environments"]
    stem = f"{example.stem}_"
    fitting = [name for name in names if stem.startswith(f"{name.replace('-', '_')}_")]
    return max(fitting, key=len, default="")


def foreign_tests(prefix: Path) -> list[Path]:
    """Return the tests that do not belong to the interpreter at a prefix."""
    listed = environments().values()
    return [entry.tests for entry in listed if prefix.resolve() != entry.venv.resolve()]


def list_excluded() -> list[str]:
    """Return the files that need an SDK, as the main type check excludes them."""
    sources = [source for entry in environments().values() for source in entry.sources]
    needing = [path.relative_to(ROOT).as_posix() for path in sources if needs_sdk(path)]
    tests = (f"tests/adapters/test_{entry.module}.py" for entry in environments().values())
    return [*needing, "examples/*_*.py", *tests]


def needs_sdk(source: Path) -> bool:
    """Tell whether a module of an adapter imports its SDK, which it guards by `MissingExtra`."""
    return "raise MissingExtra(" in source.read_text(encoding="utf-8")


def list_adapters() -> list[str]:
    """Return the names of all adapters, modules and packages."""
    found = [path for path in ADAPTERS.iterdir() if path.suffix == ".py" or path.is_dir()]
    return sorted(path.stem for path in found if not path.stem.startswith("_"))


def _environment(name: str, base: tuple[str, ...], entry: dict[str, Any]) -> Environment:
    fields = {key: _value(value) for key, value in entry.items()}
    return Environment(name=name, base=base, **fields)


def _value(value: object) -> Any:
    return value if isinstance(value, bool) else tuple(cast("Iterable[str]", value))
