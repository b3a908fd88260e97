"""What client and daemon must agree on: methods, envelope, framing, errors, paths, addresses.

Modules that the hot paths of ``ckpt`` import (``version``, ``wirepath``, ``framing``, ``errors``, ``address``)
use the standard library alone; the Structs need msgspec and live in modules of their own.
"""
