"""Imported translators of real sizes compute and search as in transformers.

OPUS-MT has the published shape: 6 + 6 layers of 512, and 58,101 words. The others have the published width, heads,
feed-forward layers and positions, but 2 + 2 of 12 + 12 layers, since all would take 2 GB in each of several copies.
With all words, logits are compared; those of NLLB-200 and mBART-50, a quarter of a million, with a width of 256, where
1,024 would take 7.6 GB at the peak. Searches have 20,000 words: with more, the output layer takes minutes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")  # which needs Python 3.11
pytest.importorskip("sentencepiece")

import test_m2m_import as coded
import test_marian_import as marian

pytestmark = pytest.mark.slow

OPUS: dict[str, Any] = {"d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "max_position_embeddings": 512}
OPUS |= {"encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048, "encoder_attention_heads": 8, "decoder_attention_heads": 8}
LARGE: dict[str, Any] = {"d_model": 1024, "encoder_layers": 2, "decoder_layers": 2, "max_position_embeddings": 1024}
LARGE |= {"encoder_ffn_dim": 4096, "decoder_ffn_dim": 4096}
LARGE |= {"encoder_attention_heads": 16, "decoder_attention_heads": 16}
# Larger than transformers' own, so that logits differ as much as those of narrow models.
GAINS = {512: {"words": 3.0, "maps": 4.0}, 1024: {"words": 2.3, "maps": 2.8}, 256: {"words": 4.2, "maps": 4.0}}
NARROW: dict[str, Any] = {**LARGE, "d_model": 256, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
N_WORDS = {"m2m100": (128_112, LARGE), "nllb": (256_206, NARROW), "mbart": (250_054, NARROW)}


def test_opus_mt(tmp_path: Path) -> None:
    imported = marian.Imported(tmp_path, **OPUS, **GAINS[512], more=57_786, eos=5.5)
    assert imported.theirs.config.vocab_size == 58_101
    marian.check_logits(imported)
    assert len(marian.found_by_beams(imported, 7)) > 2, "the sentences are alike"


@pytest.mark.parametrize("name", N_WORDS)
def test_all_words(name: str, tmp_path: Path) -> None:
    (n, shape), small = N_WORDS[name], coded.Imported(tmp_path / "small", name).theirs.config.vocab_size
    imported = coded.Imported(tmp_path / "large", name, **shape, **GAINS[shape["d_model"]], more=n - small)
    assert imported.theirs.config.vocab_size == n
    coded.check_logits(imported, 5)


@pytest.mark.parametrize("name", N_WORDS)
def test_three_hundred_beams(name: str, tmp_path: Path) -> None:
    imported = coded.Imported(tmp_path, name, **LARGE, **GAINS[1024], more=19_700)
    texts, lengths = coded.found_by_beams(imported, 7)
    assert len(texts) > 10 and max(lengths) == 6, "the sentences are alike"
