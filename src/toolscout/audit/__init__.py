"""Lints: what makes tools hard to find, said to those who write them.

`findings` looks at a whole catalogue and gives findings by tool; `near` names the tools that one
is easily taken for; `admitted` makes a catalogue of tools whose names collide. Each rule is a
function of its own: of one tool in `rules`, of several in `names` and `twins`, of searches in
`probes`. Nothing here changes a tool or prints.
"""

from toolscout.audit.duplicates import Near, near
from toolscout.audit.lint import Progress, admitted, by_tool, findings, probed_tools
from toolscout.audit.probes import Probe, read_probes
from toolscout.audit.rules import Finding, Severity

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
