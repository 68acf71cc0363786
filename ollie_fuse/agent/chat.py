"""The conversation as people read it: what is said, rendered into one growing text while it is said."""

from typing import Literal

from ollie_fuse.agent.growing import Growing
from ollie_fuse.stamp import Stamp

_Block = Literal["assistant", "reasoning"]


class Chat:
    """Writes ``chat``. Every record ends with a newline; only a block that streams may still lack its own."""

    __slots__ = ("_block", "_later", "text")

    def __init__(self, stamp: Stamp) -> None:
        self.text = Growing(stamp)
        self._block: _Block | None = None
        self._later: list[str] = []

    def user(self, text: str) -> None:
        """Add a prompt."""
        self._line(f"user: {text}")

    def info(self, text: str) -> None:
        """Add what a command answered or the daemon has to say; after the message that streams, if one does."""
        if self._block is None:
            self._line(f":: {text}")
        else:
            self._later.append(text)

    def error(self, text: str) -> None:
        """Add why something failed."""
        self._line(f"error: {text}")

    def assistant(self, delta: str) -> None:
        """Add a piece of an answer."""
        self._enter("assistant")
        self.text.append(delta)

    def reasoning(self, delta: str) -> None:
        """Add a piece of what the model thought."""
        self._enter("reasoning")
        self.text.append(delta)

    def end_block(self) -> None:
        """Close what streams."""
        block, self._block = self._block, None
        if block is None:
            return
        if self.text.is_line_open:
            self.text.append("\n")
        if block == "reasoning":
            self.text.append("</think>\n")
        later, self._later = self._later, []
        for text in later:
            self._line(f":: {text}")

    def _enter(self, block: _Block) -> None:
        if self._block != block:
            self.end_block()
            self._block = block
            self.text.append("assistant: " if block == "assistant" else "<think>\n")

    def _line(self, text: str) -> None:
        self.end_block()
        self.text.append(text if text.endswith("\n") else f"{text}\n")
