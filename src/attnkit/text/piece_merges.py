"""New pieces for other text in the vocabulary of an imported translator.

As byte-pair encoding does, frequent neighbours are joined on and on (Sennrich et al. 2016), from the pieces that the
model finds in the text. Scores are such that a new piece is taken where its two parts would have been: in BPE, it is
merged after all others; in a unigram model, it has a little more than the sum of their scores. So other text keeps its
pieces; in a unigram model, unless another way to cut it has nearly the same score.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import zip_longest

from tokenizers import Regex, pre_tokenizers

from attnkit.text.config import MASK
from attnkit.text.continued_merges import join_pairs
from attnkit.text.piece_symbols import with_new_pieces
from attnkit.text.piece_vocabulary import PieceVocabulary
from attnkit.text.sentencepiece import SentencePiece
from attnkit.text.sentencepiece_file import NORMAL, SPACE, SentencePieceEntry, SentencePieceModel
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary_schema import MAX_WORD_LENGTH, WORDS

MIN_FREQUENCY = 2  #: of a new character or pair
MARGIN = 0.01  #: what a new piece of a unigram model has above the sum of its parts; float32 adds up more exactly
_WORDS = pre_tokenizers.Split(Regex(WORDS), "isolated")


def with_learned_pieces(sides: Sequence[Tokenizer], texts: Sequence[Iterable[str]], n_entries: int) -> list[Tokenizer]:
    """Return vocabularies with at most ``n_entries`` more, learned from a text each.

    The vocabularies have one list of names, as the two sides of a Marian have. Raises ``UsageError`` as
    ``with_new_pieces``.
    """
    learned = []
    for side, lines in zip(sides, texts, strict=True):
        assert side.pieces is not None, "the caller looks"
        learned.append(_learn(side.pieces, lines, n_entries))
    names: dict[str, None] = {}
    kept: list[list[SentencePieceEntry]] = [[] for _ in sides]
    # A piece needs those before it, of which it is made: the lists end together.
    for entries in zip_longest(*learned):
        new = {entry.text for entry in entries if entry is not None}.difference(names)
        if len(names) + len(new) > n_entries:
            break
        for own, entry in zip(kept, entries, strict=True):
            if entry is not None:
                own.append(entry)
                names[entry.text] = None
    return [with_new_pieces(side, own, list(names)) for side, own in zip(sides, kept, strict=True)]


def _learn(pieces: PieceVocabulary, lines: Iterable[str], n_entries: int) -> list[SentencePieceEntry]:
    """Return the new pieces of a text: characters, then what is joined, in order."""
    words = count_piece_words(pieces, lines)
    characters = new_characters(pieces.model, words, n_entries)
    model = replace(pieces.model, pieces=(*pieces.model.pieces, *characters))
    runs: Counter[tuple[str, ...]] = Counter()
    for n, cut in zip(words.values(), cut_words(model, list(words)), strict=True):
        for part in (part for run in cut for part in split_run(run)):
            runs[part] += n
    known = reserved(pieces) | {entry.text for entry in characters}
    n_merges = n_entries - len(characters)
    merges = join_pairs([list(run) for run in runs], list(runs.values()), known, n_merges, MIN_FREQUENCY)
    return [*characters, *merged_entries(model, merges)]


def count_piece_words(pieces: PieceVocabulary, lines: Iterable[str]) -> Counter[str]:
    """Return the words of normalized lines, each with the space before it."""
    words: Counter[str] = Counter()
    for line in lines:
        for text in (text for text, id in pieces.parts(line) if id is None):
            first, *rest = pieces.normalize(text).split(" ")
            words[SPACE + first if pieces.model.add_dummy_prefix else first] += 1
            words.update(SPACE + word for word in rest)
    return Counter({word: n for word, n in words.items() if word.strip(SPACE)})


def new_characters(model: SentencePieceModel, words: Counter[str], n_entries: int) -> list[SentencePieceEntry]:
    """Return entries of the most frequent characters without one, ties by code point."""
    known = {piece.text for piece in model.pieces}
    counts: Counter[str] = Counter()
    for word, n in words.items():
        for character in word:
            if character not in known:
                counts[character] += n
    frequent = [character for character, n in counts.items() if n >= MIN_FREQUENCY]
    chosen = sorted(frequent, key=lambda character: (-counts[character], character))[:n_entries]
    return [SentencePieceEntry(character, _worst(model), NORMAL) for character in chosen]


def cut_words(model: SentencePieceModel, words: list[str]) -> list[list[list[str]]]:
    """Return the pieces of each word, in runs without unknown characters and symbols."""
    apart = {*model.symbols.values(), *(id for id, piece in enumerate(model.pieces) if piece.type != NORMAL)}
    cut = []
    for ids, _ in SentencePiece(model).encode_normalized(words):
        runs: list[list[str]] = [[]]
        for id in ids:
            if id in apart:
                runs.append([])
            else:
                runs[-1].append(model.pieces[id].text)
        cut.append([run for run in runs if run])
    return cut


def split_run(run: list[str]) -> list[tuple[str, ...]]:
    """Split pieces at punctuation and numbers, and where they get long.

    attnkit's own BPE joins nothing across punctuation and numbers either. A language without spaces has lines of one
    word, and a merge takes time for each piece of the words that it changes.
    """
    text = "".join(run).replace(SPACE, " ")
    part_of = [number for number, (part, _) in enumerate(_WORDS.pre_tokenize_str(text)) for _ in part]
    found: list[list[str]] = []
    at = last = begin = 0  # of the piece, the one before it, and the first one of the part
    for piece in run:
        end = at + len(piece)
        # A piece of the model may have a letter and a full stop: no other is joined to it.
        if found and part_of[last] == part_of[end - 1] and end - begin <= MAX_WORD_LENGTH:
            found[-1].append(piece)
        else:
            found.append([piece])
            begin = at
        at, last = end, at
    return [tuple(part) for part in found]


def merged_entries(model: SentencePieceModel, merges: list[list[str]]) -> list[SentencePieceEntry]:
    """Return the entries of merges, in their order, with their scores."""
    if model.algorithm == "bpe":
        worst = _worst(model)
        return [SentencePieceEntry("".join(merge), worst - 1 - n, NORMAL) for n, merge in enumerate(merges)]
    scores = {piece.text: piece.score for piece in model.pieces}
    for left, right in merges:
        # The logarithm of a probability is not above 0, which is where a symbol has its score.
        scores[left + right] = min(scores[left] + scores[right] + MARGIN, 0.0)
    return [SentencePieceEntry(left + right, scores[left + right], NORMAL) for left, right in merges]


def reserved(pieces: PieceVocabulary) -> set[str]:
    """Return the texts that no new piece may have."""
    special = {MASK, *pieces.symbols, *(name for name in pieces.roles.values() if name is not None)}
    return special | {piece.text for piece in pieces.model.pieces}


def _worst(model: SentencePieceModel) -> float:
    return min((piece.score for piece in model.pieces if piece.type == NORMAL), default=0.0)
