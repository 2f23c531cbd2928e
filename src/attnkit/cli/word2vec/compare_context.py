"""``attnkit word2vec compare-context``: static and contextual vectors of a word."""

from json import dumps
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from attnkit.cli.options import EncoderLayer, Json
from attnkit.progress import console


def command(
    run: Annotated[Path, Argument(help="Run of word2vec or BERT, or a file of vectors.", metavar="RUN")],
    sentences: Annotated[list[str], Argument(help="Two or more sentences with the word.", metavar="SENTENCE...")],
    word: Annotated[str, Option("--word", help="Word to compare.", metavar="WORD")],
    encoder: Annotated[Path | None, Option(help="Run of BERT. [default: RUN if it is one]", metavar="RUN")] = None,
    layer: EncoderLayer = None,
    json: Json = False,
) -> None:
    """Compare the vectors of a word in several sentences, static and contextual.

    Static vectors come from word2vec, contextual vectors from BERT, as the mean over the word's tokens. Without
    word2vec vectors, the static vector is the one in BERT's embedding table.

    \b
    Examples:
      attnkit word2vec compare-context vectors "I eat an apple." \\
        "Apple released iOS." --word apple
      attnkit word2vec compare-context bert "I eat an apple." \\
        "Apple released iOS." --word apple
      attnkit word2vec compare-context vectors "an apple" "Apple Inc." \\
        --word apple --encoder bert
    """
    from attnkit.analysis.contextual import compare_contexts, encoder_of
    from attnkit.errors import RunError, UsageError

    reads = encoder_of(encoder or run, layer)
    if reads is None and encoder is not None:
        raise RunError(f"{encoder} is not a run of BERT or GPT", where="--encoder", help="attnkit pretrain-mlm")
    if reads is None and layer is not None:
        raise UsageError("word vectors have no layers", where="--layer", help="name a run of BERT with --encoder")
    found = compare_contexts(run, sentences, word, reads)
    if json:
        console.result(dumps(found.to_dict(), ensure_ascii=False))
        return
    texts = enumerate(zip(found.found, sentences, strict=True), 1)
    rows = [[f"{number}", f"“{form}”", text] for number, (form, text) in texts]
    made = "" if found.pieces is None else f" ({' '.join(found.pieces)})"
    parts = [console.table(rows, ""), f"static: {found.word}{made} = {short(found.static)}"]
    for cosine in found.cosines:
        first, second = cosine.sentences
        text = f"sentences {first} and {second}: static cosine {cosine.static:.4f} (the same vector)"
        parts.append(text if cosine.contextual is None else f"{text}\n  contextual cosine {cosine.contextual:.4f}")
    if found.contextual is None:
        parts.append(
            "This run has word vectors: one vector per word, the same in every sentence.\n"
            "The vector mixes all senses of a word. An encoder that reads the whole\n"
            "sentence (BERT) computes a vector per sentence: --encoder RUN."
        )
    else:
        rows = [[f"contextual, sentence {i}:", short(vector)] for i, vector in enumerate(found.contextual, 1)]
        parts.append(console.table(rows, ""))
        parts.append("Static vectors do not depend on the sentence; contextual vectors do.")
    console.result("\n".join(parts))


def short(vector: list[float], n: int = 3) -> str:
    """Format the first numbers of a vector, with its dimensions and norm."""
    numbers = " ".join(f"{number:.4f}" for number in vector[:n])
    length = sum(number * number for number in vector) ** 0.5
    return f"[{numbers}{' …' if len(vector) > n else ''}] ({len(vector):,} dimensions, norm {length:.3f})"
