"""The console: what an agent sees, for a person to look at, as an API and a page over it.

`console` puts the parts together; each of them is one noun. Everything that it shows is narrowed
to what the bearer of a token may see, and it never offers what that bearer may not do.
"""
