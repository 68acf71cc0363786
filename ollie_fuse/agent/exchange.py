"""A prompt and its reply, from the first flush of its text to the end of its turn."""

from codecs import getincrementaldecoder

from ollie_fuse.agent.growing import Growing
from ollie_fuse.errors import Invalid, OllieError, TooLarge
from ollie_fuse.stamp import Stamp

PROMPT_LIMIT_BYTES = 1 << 20


class Exchange:
    """One prompt and what came of it.

    ``reply`` streams what the agent says; ``answer`` gets its last message alone, at the end. Both wait until
    ``finish``.
    """

    __slots__ = ("_answered", "_stamp", "answer", "error", "number", "reply", "text")

    def __init__(self, number: int, stamp: Stamp, answered: Stamp) -> None:
        self.number = number
        self.text = ""
        self.error = ""
        """Why its reply ends with an error; empty when it does not."""
        self._stamp = stamp
        self._answered = answered
        self.reply = Growing(stamp)
        self.answer = Growing(answered)

    @property
    def first_line(self) -> str:
        """The start of the prompt, for lists."""
        return self.text.lstrip().partition("\n")[0][:80]

    def finish(self, answer: str = "", error: OllieError | None = None) -> None:
        """End both streams."""
        self.error = "" if error is None else str(error)
        if error is None:
            self.answer.append(answer)
            if not len(self.reply):  # a command's answer did not stream
                self.reply.append(answer)
        self.answer.end(error)
        self.reply.end(error)

    def reopen(self) -> None:
        """Give an exchange that was held new streams: the old ones told their readers that it was."""
        self.error = ""
        self.reply = Growing(self._stamp)
        self.answer = Growing(self._answered)


class Draft:
    """What is being written to one open ``prompt``; it becomes a prompt when it is taken.

    Once a piece was refused the whole draft is, so that no half of a prompt is ever sent.
    """

    __slots__ = ("_decoder", "_pieces", "_size", "error", "exchange", "is_stopped")

    def __init__(self) -> None:
        self._decoder = getincrementaldecoder("utf-8")()
        self._pieces: list[str] = []
        self._size = 0
        self.error: OllieError | None = None
        self.exchange: Exchange | None = None
        """Given at the first flush with text: from then on ``reply`` waits for it."""
        self.is_stopped = False
        """Whether somebody stopped it and nothing was written since: its release was only late."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written."""
        return not self._size and self.error is None

    def write(self, data: bytes) -> None:
        """Append; raises, now and from now on, when the text is too large or not UTF-8."""
        self.is_stopped = False
        if self.error is None:
            self._take(data)
        if self.error is not None:
            raise self.error

    def _take(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > PROMPT_LIMIT_BYTES:
            self.error = TooLarge(f"a prompt has at most {PROMPT_LIMIT_BYTES} bytes; nothing of it was sent")
            return
        try:
            self._pieces.append(self._decoder.decode(data))
        except UnicodeDecodeError:
            self.error = Invalid("the prompt is not UTF-8 text; nothing of it was sent")

    def text(self) -> str:
        """Return the whole text without its final newline; raises when it cannot be a prompt."""
        if self.error is None and self._decoder.getstate()[0]:
            self.error = Invalid("the prompt ends inside a UTF-8 character; nothing of it was sent")
        if self.error is None and not "".join(self._pieces).strip():
            self.error = Invalid("an empty prompt was not sent")
        if self.error is not None:
            raise self.error
        return "".join(self._pieces).removesuffix("\n")
