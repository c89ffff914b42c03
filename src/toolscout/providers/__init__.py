"""What the wire formats of providers need beyond a dialect: hidden rounds, streams, references.

Everything here is JSON in a provider's shape and imports no SDK: adapters do the sending.
"""
