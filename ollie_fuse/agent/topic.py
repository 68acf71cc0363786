"""The parts of an agent that change on their own."""

import enum


class Topic(enum.Enum):
    """A part of an agent that files show; each has the time of its last change."""

    STATE = "state"
    REPLY = "reply"
    ANSWER = "answer"
    CHAT = "chat"
    QUEUE = "queue"
    USAGE = "usage"
    SETTINGS = "settings"
    SYSTEM_PROMPT = "systemprompt"
    ERROR = "error"
