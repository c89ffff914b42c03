"""The console: what an agent sees, for a person to look at, as a web page over an API.

`app` puts the parts together. They show no more than the bearer of a token may see and do.
"""
