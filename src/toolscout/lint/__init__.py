"""Check a catalogue: lint it, compare it with another one, and replay recorded queries.

`lint` runs all checks: `rules` checks single tools, `scanner` looks for attacks in them with the
words of `phrases`, `duplicates` checks pairs of tools, and `probes` checks what searches find.
`diff` compares two catalogues, and `replay` repeats recorded queries. Nothing here changes a tool
or prints anything.
"""
