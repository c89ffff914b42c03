"""Lints: what makes tools hard to find, said to those who write them.

`findings` looks at a whole catalogue and gives findings by tool; `near` names the tools that one
is easily taken for; `admitted` makes a catalogue of tools whose names collide. Each rule is a
function of its own: of one tool in `rules`, of several in `names` and `twins`, of searches in
`probes`. Nothing here changes a tool or prints.
"""

from toolscout.lints.linter import Progress, by_tool, findings, probed_tools
from toolscout.lints.names import admitted
from toolscout.lints.probes import Probe, read_probes
from toolscout.lints.twins import Near, near
from toolscout.lints.verdicts import Finding, Severity

__all__ = [
    "Finding",
    "Near",
    "Probe",
    "Progress",
    "Severity",
    "admitted",
    "by_tool",
    "findings",
    "near",
    "probed_tools",
    "read_probes",
]
