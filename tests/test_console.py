"""console.py: what is told steers no terminal and turns no text round."""

from __future__ import annotations

import unicodedata

from attnkit.cli.console import printable


def test_no_control_and_no_sign_of_direction_is_printed_as_it_is() -> None:
    signs = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in ("Cc", "Cs", "Zl", "Zp")]
    turning = {"LRM", "RLM", "ALM", "LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
    names = {"LEFT-TO-RIGHT", "RIGHT-TO-LEFT", "ARABIC LETTER MARK", "POP DIRECTIONAL", "FIRST STRONG ISOLATE"}
    formats = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) == "Cf"]
    turns = [sign for sign in formats if any(unicodedata.name(sign, "").startswith(name) for name in names)]
    assert len(turns) == len(turning)
    for sign in {*signs, *turns} - {"\t", "\n"}:
        assert printable(f"a{sign}b") == f"a<U+{ord(sign):04X}>b"
    for same in ("a\tb\n", "caf\u00e9 \u05d0\u0628 \u200d \u6f22"):
        assert printable(same) == same
