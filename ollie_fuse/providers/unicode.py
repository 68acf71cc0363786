"""JSON may carry halves of surrogate pairs; text inside the daemon never does."""


def whole(text: str) -> str:
    """Join the surrogate pairs of *text* and replace what is left of others, so that it can be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def split_half(text: str) -> tuple[str, str]:
    """Split off a first half of a pair at the end of *text*, whose second half may come with the next piece."""
    return (text[:-1], text[-1]) if text and "\ud800" <= text[-1] <= "\udbff" else (text, "")
