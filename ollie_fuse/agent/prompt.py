"""The system prompt, from its parts."""

from dataclasses import dataclass

BUILT_IN = (
    "You are a helpful assistant on a Linux machine. Your answers are read in a terminal: "
    "answer in plain text, briefly and to the point."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A piece of a system prompt and where it comes from."""

    origin: str
    text: str


def assemble(cwd: str) -> tuple[Part, ...]:
    """Return the parts for an agent that works in *cwd*, in order."""
    shown = cwd.encode(errors="replace").decode()  # a path need not be UTF-8, a prompt must
    return (
        Part(origin="built in", text=BUILT_IN),
        Part(origin="session", text=f"The working directory is {shown}"),
    )


def text_of(parts: tuple[Part, ...]) -> str:
    """Return what the model is sent."""
    return "\n\n".join(part.text for part in parts)


def render(parts: tuple[Part, ...]) -> str:
    """Show the parts, each under a line that says where it comes from."""
    return "\n".join(f"# from: {part.origin}\n{part.text}\n" for part in parts)
