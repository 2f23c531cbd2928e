"""README files of encoders and generators that are exported to CTranslate2.

Their examples need neither attnkit nor torch.
"""

from attnkit.models.language_config import BertConfig
from attnkit.text.tokenizer import Tokenizer

_TITLES = {
    "clm": "A text generator",
    "mlm": "An encoder",
    "text-classification": "A text classifier",
    "token-classification": "A token classifier",
    "question-answering": "An extractive question answerer",
}


def generator_card(checkpoint: str, tokenizer: Tokenizer, limit: int | None, window: int) -> bytes:
    """Return the README of a generator.

    ``limit`` is its number of positions, None if any number will do, and ``window`` attnkit's default then.
    """
    use = _GENERATE if tokenizer.pieces is None else _GENERATE_OF_PIECES
    # Spaces at the end are part of the last word's token, but in vocabularies of characters.
    stripped = "" if tokenizer.config.kind == "char" else '.rstrip(" ")'
    if limit is None:
        ends = f"\nEvery token is read: `attnkit generate` reads {window} at a time, unless `--window` is given."
    else:
        ends = f"\nA prompt and its continuation have at most {limit} tokens."
    note = f"As `attnkit generate`, it never generates padding, the begin symbol or unused entries.{ends}"
    code = use.format(stripped=stripped, n_words=tokenizer.n_words)
    return _card(checkpoint, "clm", tokenizer, code, note)


def encoder_card(checkpoint: str, task: str, config: BertConfig, tokenizer: Tokenizer, limit: int) -> bytes:
    """Return the README of an encoder; ``limit`` is the maximum tokens of a row."""
    begin = _ENCODE if tokenizer.pieces is None else _ENCODE_PIECES
    between = ", ".join(['"</s>"'] * config.separators)
    segments = ", token_type_ids=list(segments)" if config.n_segments > 1 else ""
    use = _USES[task].replace("[SEP]", "[SEP]" if tokenizer.pieces is None else "</s>")
    code = begin.format(limit=limit, inner=limit - 2, between=between, segments=segments) + use
    head = "`head.npz` holds the output layer, and `labels.json` the labels in its order. "
    note = {"mlm": "", "question-answering": head.split(",")[0] + ". "}.get(task, head)
    return _card(checkpoint, task, tokenizer, code, f"{note}A row has at most {limit} tokens.")


def _card(checkpoint: str, task: str, tokenizer: Tokenizer, code: str, note: str) -> bytes:
    needs = "tokenizers" if tokenizer.pieces is None else "sentencepiece"
    return _CARD.format(title=_TITLES[task], checkpoint=checkpoint, needs=needs, code=code, note=note).encode()


_GENERATE = """\
import json
from pathlib import Path

from ctranslate2 import Generator
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("tokenizer.json")
names = json.loads(Path("vocabulary.json").read_text(encoding="utf-8"))
never = [[name] for name in (*names[:2], *names[{n_words}:])]
generator = Generator(".", device="cpu", compute_type="float32")


def generate(prompts: list[str], max_length: int = 20) -> list[str]:
    rows = [tokenizer.encode(prompt{stripped}).ids for prompt in prompts]
    results = generator.generate_batch(
        [[names[id] for id in row] for row in rows],
        # In a batch with an empty prompt, CTranslate2 puts the other prompts into their results.
        max_batch_size=64 if min(map(len, rows)) > 1 else 1,
        max_length=max_length,
        include_prompt_in_result=False,
        suppress_sequences=never,
    )
    return [tokenizer.decode([*row[1:], *result.sequences_ids[0]]) for row, result in zip(rows, results)]


print("\\n".join(generate(["The cat"])))"""
_GENERATE_OF_PIECES = """\
import json
from pathlib import Path

from ctranslate2 import Generator
from sentencepiece import SentencePieceProcessor

pieces = SentencePieceProcessor(model_file="sentencepiece.model")
names = json.loads(Path("vocabulary.json").read_text(encoding="utf-8"))
never = [[name] for name in (*names[:2], *names[{n_words}:])]
generator = Generator(".", device="cpu", compute_type="float32")


def generate(prompts: list[str], max_length: int = 20) -> list[str]:
    rows = [["<s>", *pieces.encode(prompt{stripped}, out_type=str)] for prompt in prompts]
    results = generator.generate_batch(
        rows,
        # In a batch with an empty prompt, CTranslate2 puts the other prompts into their results.
        max_batch_size=64 if min(map(len, rows)) > 1 else 1,
        max_length=max_length,
        include_prompt_in_result=False,
        suppress_sequences=never,
    )
    return [pieces.decode_pieces([*row[1:], *result.sequences[0]]) for row, result in zip(rows, results)]


print("\\n".join(generate(["The cat"])))"""
_ENCODE = """\
import json
from pathlib import Path

import numpy as np
from ctranslate2 import Encoder
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("tokenizer.json")
tokenizer.enable_truncation({limit})
names = json.loads(Path("vocabulary.json").read_text(encoding="utf-8"))
encoder = Encoder(".", device="cpu", compute_type="float32")


def encode(*texts: str) -> tuple[list[str], list[int]]:
    row = tokenizer.encode(*texts)  # of a text or of a pair of texts
    return [names[id] for id in row.ids], row.type_ids


def decode(tokens: list[str]) -> str:
    return tokenizer.decode([names.index(token) for token in tokens])


def forward(rows: list[tuple[str, ...]]):
    tokens, segments = zip(*(encode(*texts) for texts in rows))
    return tokens, encoder.forward_batch(list(tokens){segments})


"""
_ENCODE_PIECES = """\
import json
from pathlib import Path

import numpy as np
from ctranslate2 import Encoder
from sentencepiece import SentencePieceProcessor

pieces = SentencePieceProcessor(model_file="sentencepiece.model")
encoder = Encoder(".", device="cpu", compute_type="float32")


def encode(text: str, *second: str) -> tuple[list[str], list[int]]:
    row = ["<s>", *pieces.encode(text, out_type=str)[:{inner}], "</s>"]
    for more in second:  # the second text of a pair
        row[-1:] = [{between}, *pieces.encode(more, out_type=str), "</s>"]
    return row, [0] * len(row)


def decode(tokens: list[str]) -> str:
    return pieces.decode_pieces(tokens)


def forward(rows: list[tuple[str, ...]]):
    tokens, segments = zip(*(encode(*texts) for texts in rows))
    return tokens, encoder.forward_batch(list(tokens){segments})


"""
_USES = {
    "mlm": """\
def features(texts: list[str]) -> list[np.ndarray]:
    tokens, output = forward([(text,) for text in texts])
    hidden = np.array(output.last_hidden_state)  # (texts, tokens, width), with padding
    return [vectors[: len(row)] for row, vectors in zip(tokens, hidden)]


print(features(["The cat sat on the mat."])[0].mean(axis=0))""",
    "text-classification": """\
head, labels = np.load("head.npz"), json.loads(Path("labels.json").read_text(encoding="utf-8"))


def classify(rows: list[tuple[str, ...]]) -> list[str]:
    _, output = forward(rows)
    logits = np.array(output.pooler_output) @ head["weight"].T + head["bias"]
    return [labels[id] for id in logits.argmax(axis=-1)]


print("\\n".join(classify([("A film worth seeing.",)])))""",
    "token-classification": """\
head, labels = np.load("head.npz"), json.loads(Path("labels.json").read_text(encoding="utf-8"))


def tag(text: str) -> list[tuple[str, str]]:
    (tokens,), output = forward([(text,)])
    logits = np.array(output.last_hidden_state)[0] @ head["weight"].T + head["bias"]
    return [(token, labels[id]) for token, id in zip(tokens, logits.argmax(axis=-1))][1:-1]


print(tag("Ada lives in London."))""",
    "question-answering": """\
head = np.load("head.npz")


def answer(question: str, context: str, longest: int = 30) -> str:
    (tokens,), output = forward([(question, context)])
    starts, ends = (np.array(output.last_hidden_state)[0] @ head["weight"].T + head["bias"]).T
    first = max(i for i, token in enumerate(tokens[:-1]) if token == "[SEP]") + 1
    spans = [(i, j) for i in range(first, len(tokens) - 1) for j in range(i, min(i + longest, len(tokens) - 1))]
    i, j = max(spans, key=lambda span: starts[span[0]] + ends[span[1]])
    return decode(tokens[i : j + 1])


print(answer("Who wrote it?", "It was written by Ada."))""",
}
_CARD = """\
# {title} for CTranslate2

Written by `attnkit export` from the checkpoint `{checkpoint}`. It needs neither attnkit nor torch:
`pip install ctranslate2 {needs}`. The names in `vocabulary.json` are in the order of ids, which are those of attnkit.
Run this inside the folder:

```python
{code}
```

{note} `compute_type="int8"` is faster but changes some results.
"""
