"""Skills: folders with a `SKILL.md` that teach a model how to do something.

`SkillFolder` reads them and makes entries for a catalogue of them, which the same search finds.
Scripts in a skill are read like any other file and never run.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolscout.skills.skill import Skill, SkillFolder, SkillProblem

__all__ = ["Skill", "SkillFolder", "SkillProblem"]

if not TYPE_CHECKING:  # otherwise type checkers would accept every misspelt name

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.skill"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
