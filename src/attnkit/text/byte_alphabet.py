"""The byte alphabet of the subword kinds: 256 printable characters that stand for bytes, as GPT-2 chose them."""

from __future__ import annotations

CONTINUED = "‿"
"""Before WordPiece entries that continue a word; outside the byte alphabet, so it can mean nothing else."""


BERT_CONTINUED = "##"
"""Before entries that continue a word, in the vocabularies of BERT."""


def _characters() -> list[str]:
    """Return the character of each byte: itself where it is printable and no space, else the next from U+0100 on.

    Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", and ``tokenizers``' ByteLevel.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    characters, n_moved = [], 0
    for byte in range(256):
        characters.append(chr(byte if byte in printable else 0x100 + n_moved))
        n_moved += byte not in printable
    return characters


CHARACTERS = _characters()
"""The character of each byte."""

BYTE_OF = {character: byte for byte, character in enumerate(CHARACTERS)}
"""The byte of each character."""


def display(raw: bytes) -> str:
    """Return bytes for people: a space as ``▁``, what is no character or cannot be printed as ``<0x..>``."""
    shown = []
    for character in raw.decode("utf-8", errors="surrogateescape"):
        if character == " ":
            shown.append("▁")
        elif character.isprintable():
            shown.append(character)
        else:
            shown += [f"<0x{byte:02X}>" for byte in character.encode("utf-8", errors="surrogateescape")]
    return "".join(shown)
