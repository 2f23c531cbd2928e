"""First and last characters of tokens; a token may split one. Torch-free."""


def first_character(text: bytes) -> str:
    """Return the first character of UTF-8 text, U+FFFD if it is not whole."""
    return text[:4].decode(errors="replace")[:1] or " "


def last_character(text: bytes) -> str:
    """Return the last character of UTF-8 text, U+FFFD if it is not whole."""
    return text[-4:].decode(errors="replace")[-1:] or " "
