"""Export of translation runs to Marian's own format.

Bergamot and CTranslate2's converter of OPUS-MT read it too.
"""

from collections.abc import Sequence
from pathlib import Path

import torch

from attnkit.conversion.export_ctranslate2 import ExportResult, check_empty, n_bytes_of, new_folder, tokenizer_files
from attnkit.formats.ctranslate2 import entry_names
from attnkit.formats.huggingface.translation_layout import WORDS, to_marian
from attnkit.formats.marian import (
    EOS,
    UNK,
    check_marian_format,
    marian_config,
    marian_names,
    marian_parameters,
    npz,
    vocabulary_file,
)
from attnkit.io import atomic
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from attnkit.tasks.translation.loading import load_run
from attnkit.text.tokenizer import Tokenizer


def export_marian(run: Path, folder: Path, *, checkpoint: str | None = None) -> ExportResult:
    """Export a Transformer run to Marian.

    The folder has ``model.npz``, vocabularies, ``decoder.yml``, tokenizers and a README.

    Marian has neither padding nor BOS in its vocabularies: their rows are left out. Raises ``RunError`` if the run is
    missing, damaged or not supported by Marian, ``UsageError`` if the folder is not empty.
    """
    check_empty(folder)
    loaded = load_run(run, device="cpu", checkpoint=checkpoint)
    config = check_marian_format(loaded.config.model)
    src, tgt = loaded.src_tokenizer, loaded.tgt_tokenizer
    orders = [_order(tokenizer) for tokenizer in (src, tgt)]
    state = {name: tensor.detach() for name, tensor in loaded.model.state_dict().items()}
    for name in WORDS:
        state[name] = state[name][torch.tensor(orders[name != WORDS[0]])]
    theirs = {name: tensor.numpy() for name, tensor in to_marian(config, state).items()}
    sizes = len(orders[0]), len(orders[1])
    contents = [vocabulary_file(_names(tokenizer, order)) for tokenizer, order in zip((src, tgt), orders, strict=True)]
    shared = contents[0] == contents[1]
    vocabularies = ["vocab.yml"] * 2 if shared else ["vocab.source.yml", "vocab.target.yml"]
    files = {"model.npz": npz(marian_parameters(config, theirs), marian_config(config, sizes))}
    files |= dict(zip(vocabularies, contents, strict=True))
    tokenizers = tokenizer_files(src, tgt)
    card = _CARD.format(
        checkpoint=loaded.checkpoint,
        needs="tokenizers" if src.pieces is None else "sentencepiece",
        use=_use(src, list(tokenizers), vocabularies),
    )
    files |= {**tokenizers, "decoder.yml": _decoder(vocabularies), "README.md": card.encode()}
    with new_folder(folder) as temporary:
        for name, content in files.items():
            atomic.write_new_file(temporary / name, content)
    return ExportResult(folder, loaded.checkpoint, n_bytes_of(folder), loaded.warnings)


def _order(tokenizer: Tokenizer) -> list[int]:
    """Return our id for each of Marian's.

    They are those of an imported model, else EOS, unknown and the rest.
    """
    if tokenizer.pieces is not None:
        theirs = tokenizer.pieces.order
        return sorted((id for id in range(len(theirs)) if id not in (PAD_ID, BOS_ID)), key=theirs.__getitem__)
    return [EOS_ID, UNK_ID, *(id for id in range(tokenizer.vocab_size) if id not in (PAD_ID, BOS_ID, EOS_ID, UNK_ID))]


def _names(tokenizer: Tokenizer, order: Sequence[int]) -> list[str]:
    names = entry_names(tokenizer)
    names[EOS_ID], names[UNK_ID] = EOS, UNK
    chosen = [names[id] for id in order]
    return chosen if tokenizer.pieces is not None else marian_names(chosen)  # sentencepiece writes pieces as they are


def _decoder(vocabularies: Sequence[str]) -> bytes:
    """Return the settings of Marian's decoder."""
    lines = ["relative-paths: true", "models:", "  - model.npz", "vocabs:", *(f"  - {name}" for name in vocabularies)]
    lines += ["beam-size: 5", "normalize: 1", "word-penalty: 0", "mini-batch: 16", "maxi-batch: 100"]
    return ("\n".join([*lines, "maxi-batch-sort: src"]) + "\n").encode()


def _use(src: Tokenizer, tokenizers: Sequence[str], vocabularies: Sequence[str]) -> str:
    """Return the commands that translate a file."""
    if src.pieces is not None:
        return _USE_OF_PIECES.format(src=tokenizers[0], tgt=tokenizers[-1])
    given = {"src": tokenizers[0], "tgt": tokenizers[-1], "src_names": vocabularies[0], "tgt_names": vocabularies[1]}
    return _USE.format(**given)


_CARD = """\
# A translation model for Marian

Written by `attnkit export` from the checkpoint `{checkpoint}`: `model.npz` and `decoder.yml` in Marian's format, which
Bergamot and CTranslate2 (`ct2-opus-mt-converter --model_dir . --output_dir ct2`) read too. Marian reads tokens and
writes tokens, separated by spaces; this needs `pip install {needs}`:

{use}
"""
_USE_OF_PIECES = """\
```sh
spm_encode --model {src} < text | marian-decoder -c decoder.yml | spm_decode --model {tgt}
```"""
_USE = """\
```python
import json
import sys
from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer

folder = Path(".")


@lru_cache
def names(file: str) -> list[str]:
    \"\"\"Return the entries of a vocabulary in the order of Marian's ids.\"\"\"
    lines = (folder / file).read_text(encoding="utf-8").rstrip("\\n").split("\\n")
    return [json.loads(line.rpartition(": ")[0]) for line in lines]


@lru_cache
def ids(file: str) -> dict[str, int]:
    \"\"\"Return Marian's id of each entry of a vocabulary.\"\"\"
    return {{name: id for id, name in enumerate(names(file))}}


@lru_cache
def tokenizer(file: str) -> Tokenizer:
    \"\"\"Return a tokenizer, which is read once.\"\"\"
    return Tokenizer.from_file(str(folder / file))


def encode(line: str) -> str:
    \"\"\"Return a line as Marian reads it; the tokenizer counts padding and <s> first, Marian does not.\"\"\"
    entries, own = names("{src_names}"), {{2: 0, 3: 1}}  # </s> and <unk>
    return " ".join(entries[own.get(id, id - 2)] for id in tokenizer("{src}").encode(line).ids)


def decode(line: str) -> str:
    \"\"\"Return the text of a line that Marian wrote.\"\"\"
    entries, own = ids("{tgt_names}"), {{0: 2, 1: 3}}
    return tokenizer("{tgt}").decode([own.get(id, id + 2) for id in (entries[name] for name in line.split())])


if __name__ == "__main__":  # python code.py encode < text | marian-decoder -c decoder.yml | python code.py decode
    convert = {{"encode": encode, "decode": decode}}[sys.argv[1]]
    for line in sys.stdin:
        print(convert(line.rstrip("\\n")))
```"""
