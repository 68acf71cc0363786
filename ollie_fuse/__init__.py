"""LLM agents as a Linux filesystem."""

__version__ = "0.1.0"
