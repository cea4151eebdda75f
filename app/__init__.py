"""The Qt front end and the command line. Knows the engine's public face and nothing behind it."""

__version__ = "0.1.0"
