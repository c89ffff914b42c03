"""The Messages API: deferred definitions, references, and rounds hidden inside one reply."""
