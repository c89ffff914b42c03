"""Encoders turn texts into vectors.

`StaticEncoder` is the default, `OnnxEncoder` a small transformer, `EndpointEncoder` a remote
service, `CallableEncoder` any function, `Blended` two encoders at once. Subclass `Encoder` to write
your own. Each class is imported on first use.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolscout.encoders.encoder import (
        Blended,
        CallableEncoder,
        Encoder,
        EndpointEncoder,
        StaticEncoder,
    )
    from toolscout.encoders.onnx import OnnxEncoder

__all__ = [
    "Blended",
    "CallableEncoder",
    "Encoder",
    "EndpointEncoder",
    "OnnxEncoder",
    "StaticEncoder",
]

if not TYPE_CHECKING:  # a type checker would otherwise accept any misspelt name

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = "onnx" if name == "OnnxEncoder" else "encoder"
        value = getattr(import_module(f"{__name__}.{home}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
