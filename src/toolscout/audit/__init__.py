"""Audits of a catalogue: lint rules, near-duplicates, probes, differences and replays.

`lint` runs all rules over a catalogue; `rules` judges single tools, `duplicates` pairs of tools and
`probes` searches. `diff` compares two catalogues and `replay` asks recorded queries again. Nothing
here changes a tool or prints.
"""
