"""Write a run as a folder that Hugging Face's transformers loads: configuration, weights, tokenizer, README."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import safetensors.torch
import torch
from torch import Tensor

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.conversion.convert import Exported, check_empty
from attnkit.engine.checkpoint_metadata import read_labels, read_run_config
from attnkit.engine.loading import load_model
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import RunError
from attnkit.formats.huggingface import config as configs
from attnkit.formats.huggingface import layout
from attnkit.formats.huggingface import tokenizer as tokens
from attnkit.formats.huggingface.layout import to_marian
from attnkit.io import atomic
from attnkit.models.language_config import BertConfig, LanguageConfig
from attnkit.models.positions import rotations, sinusoids
from attnkit.tasks.language_modeling.config import MASK
from attnkit.tasks.translation.loading import load_run
from attnkit.text.tokenizer import Tokenizer

Tree = dict[str, Any]
Language = TypeVar("Language", bound=LanguageConfig)
_NO_JUDGE = "what judges next sentences stays here: transformers' RoFormer has none"
LONGEST = 1024
"""Tokens of a side that an exported translation model takes; ours has no such limit."""


@dataclass(frozen=True)
class Made:
    """What a folder holds."""

    config: Tree
    tensors: dict[str, Tensor]
    tokenizer: dict[str, Tree]
    use: str
    """Python that uses it, for people."""
    generation: Tree | None = None
    target: dict[str, Tree] = field(default_factory=dict)
    """The tokenizer of the target side, where it has its own."""
    warnings: tuple[str, ...] = ()
    """What is not in the folder."""


def export_huggingface(run: Path, folder: Path, *, checkpoint: str | None = None) -> Exported:
    """Write a run of BERT, of what was made of one, of GPT or of a Transformer that translates.

    A BERT with rotary positions is transformers' RoFormer, which has nothing that judges next sentences.

    Raises:
        RunError: the run is missing or damaged, or transformers has no such model.
        UsageError: the folder is not empty.
    """
    check_empty(folder)
    chosen, warnings = RunFolder(run).checkpoint(checkpoint)
    task = read_run_config(chosen).task
    if task not in _MAKERS:
        help = f"it takes runs of the kinds {', '.join(_MAKERS)}"
        raise RunError(f"transformers has no model for a run of the kind '{task}'", where=str(run), help=help)
    made = _MAKERS[task](run, chosen)
    atomic.make_dirs(folder.absolute().parent)
    with atomic.atomic_dir(folder.absolute()) as temporary:
        _write(temporary, made, chosen.name)
    n_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Exported(folder, chosen.name, n_bytes, (*warnings, *made.warnings))


def _write(folder: Path, made: Made, checkpoint: str) -> None:
    trees = {"config.json": {**made.config, "dtype": "float32"}, **made.tokenizer}
    if made.generation is not None:
        trees["generation_config.json"] = made.generation
    for name, tree in trees.items():
        _write_tree(folder / name, tree)
    if made.target:
        atomic.make_dirs(folder / "target")
        for name, tree in made.target.items():
            _write_tree(folder / "target" / name, tree)
    data = safetensors.torch.save(made.tensors, metadata={"format": "pt"})
    atomic.write_new_file(folder / "model.safetensors", data)
    card = _CARD.format(architecture=made.config["architectures"][0], checkpoint=checkpoint, use=made.use)
    atomic.write_new_file(folder / "README.md", card.encode())


def _write_tree(path: Path, tree: Tree) -> None:
    atomic.write_new_file(path, (json.dumps(tree, indent=2, ensure_ascii=False) + "\n").encode())


def _make_mlm(run: Path, chosen: Checkpoint) -> Made:
    opened = load_model(run, "mlm", device="cpu", checkpoint=chosen.name)
    config: BertConfig = _long_enough(opened.config.model, opened.config.data.sequence_length)
    links = layout.bert_body(config) + layout.bert_head(config)
    follows = config.next_sentence and layout.body_kind(config) == "bert"
    links += layout.next_sentence() if follows else []
    made = _make_bert(chosen, config, links, opened.model, "PreTraining" if follows else "MaskedLM")
    left = config.next_sentence and not follows
    return replace(made, warnings=(_NO_JUDGE,)) if left else made


def _make_labeled(task: str, links: Callable[[BertConfig], list[layout.Link]], name: str) -> Callable[..., Made]:
    """Return what makes a folder of an encoder that was fine-tuned for a task."""

    def make(run: Path, chosen: Checkpoint) -> Made:
        opened = load_model(run, task, device="cpu", checkpoint=chosen.name)
        config: BertConfig = _long_enough(opened.config.model, opened.config.max_row_length)
        labels = [] if task == "question-answering" else read_labels(chosen).labels
        return _make_bert(chosen, config, links(config), opened.model, name, labels)

    return make


def _make_bert(
    chosen: Checkpoint,
    config: BertConfig,
    links: Sequence[layout.Link],
    model: torch.nn.Module,
    name: str,
    labels: Sequence[str] = (),
) -> Made:
    configs.refuse_language(config)
    tokenizer, kind = read_tokenizer(chosen), layout.body_kind(config)
    tensors = layout.to_theirs(links, model.state_dict())
    tensors |= _tables(config, layout.PREFIXES[kind])
    for bias in [name for name in tensors if name.endswith(".decoder.bias")]:
        tensors[layout.other_bias(bias)] = tensors[bias].clone()  # idle, but looked for
    roles = tokens.BERT.with_separators(config.separators)
    roles = roles if config.n_segments > 1 else roles.without_segments()
    architecture = f"{'RoFormer' if kind == 'roformer' else 'Bert'}For{name}"
    return Made(
        config=configs.bert_json(config, kind, tokenizer.vocab_size, architecture, labels),
        tensors=tensors,
        tokenizer=tokenizer_files(tokenizer, roles, config.max_length),
        use=_USES[f"BertFor{name}"],
    )


def _make_clm(run: Path, chosen: Checkpoint) -> Made:
    opened = load_model(run, "clm", device="cpu", checkpoint=chosen.name)
    if opened.config.direction != "left-to-right":
        help = "it takes direction left-to-right"
        raise RunError("transformers has no GPT-2 that reads from right to left", where="direction", help=help)
    config = _long_enough(opened.config.model, opened.config.data.sequence_length)
    configs.refuse_language(config)
    tokenizer = read_tokenizer(chosen)
    tensors = layout.to_theirs(layout.gpt_body(config) + layout.gpt_head(config), opened.model.state_dict())
    return Made(
        config=configs.gpt_json(config, tokenizer.vocab_size),
        tensors=tensors | _tables(config, "transformer."),
        tokenizer=tokenizer_files(tokenizer, tokens.GPT, config.max_length),
        use=_USES["GPT2LMHeadModel"],
        generation=configs.generation_json(),
    )


def _long_enough(config: Language, length: int) -> Language:
    """Return a configuration whose table of positions, where it is none of ours, holds rows as long as in training."""
    if config.positions == "learned":
        return config
    return config.model_copy(update={"max_length": max(config.max_length, length)})


def _tables(config: LanguageConfig, prefix: str) -> dict[str, Tensor]:
    """Return the tables that are none of ours: sinusoidal positions, rotations, the vector of the only segment."""
    found = {}
    if config.positions == "rotary":
        found[prefix + layout.ROTATION] = rotations(config.max_length, config.d_model // config.n_heads)
    if config.positions == "sinusoidal":
        table = sinusoids(0, config.max_length, like=torch.empty(0, config.d_model)).clone()
        found[prefix + layout.POSITIONS["bert" if isinstance(config, BertConfig) else "gpt2"]] = table
    if isinstance(config, BertConfig) and config.n_segments == 1:
        found[prefix + layout.SEGMENTS] = torch.zeros(1, config.d_model)
    return found


def _make_translation(run: Path, chosen: Checkpoint) -> Made:
    loaded = load_run(run, device="cpu", checkpoint=chosen.name)
    config = loaded.config.model
    configs.refuse_translation(config)
    src, tgt = loaded.src_tokenizer, loaded.tgt_tokenizer
    state = {name: tensor.detach() for name, tensor in loaded.model.state_dict().items()}
    assert config.kind == "transformer"
    return Made(
        config=configs.marian_json(config, (src.vocab_size, tgt.vocab_size), LONGEST),
        tensors=to_marian(config, state),
        tokenizer=tokenizer_files(src, tokens.MARIAN, LONGEST),
        use=_USES["MarianMTModel"].format(target="" if src is tgt else "/target"),
        generation=configs.generation_json(LONGEST // 4),
        target={} if src is tgt else tokenizer_files(tgt, tokens.MARIAN, LONGEST),
    )


def tokenizer_files(tokenizer: Tokenizer, roles: tokens.Roles, longest: int | None) -> dict[str, Tree]:
    """Return what the files of a tokenizer hold that gives the same ids, by their names."""
    mask = MASK if roles.names == tokens.BERT.names and MASK in tokenizer.config.symbols else None
    return tokens.files(words_of(tokenizer), roles, mask, longest)


def words_of(tokenizer: Tokenizer) -> tokens.Words:
    """Return a vocabulary in dictionaries."""
    config = tokenizer.config
    tree = json.loads(tokenizer.to_json())["tokenizer"]
    return tokens.Words(config.kind, config.normalize == "nfkc", config.symbols, tree)


_MAKERS: dict[str, Callable[[Path, Checkpoint], Made]] = {
    "mlm": _make_mlm,
    "clm": _make_clm,
    "text-classification": _make_labeled("text-classification", layout.classifier, "SequenceClassification"),
    "token-classification": _make_labeled("token-classification", layout.tagger, "TokenClassification"),
    "question-answering": _make_labeled("question-answering", layout.reader, "QuestionAnswering"),
    "translation": _make_translation,
}
"""Task -> what makes a folder of a run and its checkpoint."""

_FILL = """\
from transformers import pipeline

fill = pipeline("fill-mask", model=".")
for guess in fill("The cat sat on the [MASK]."):
    print(f"{guess['score']:.3f} {guess['token_str']}")"""
_USES = {
    "BertForMaskedLM": _FILL,
    "BertForPreTraining": _FILL,
    "BertForSequenceClassification": """\
from transformers import pipeline

print(pipeline("text-classification", model=".", top_k=None)("A film worth seeing."))""",
    "BertForTokenClassification": """\
from transformers import pipeline

print(pipeline("token-classification", model=".")("Ada lives in London."))""",
    "BertForQuestionAnswering": """\
import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("."), AutoModelForQuestionAnswering.from_pretrained(".")
inputs = tokenizer("Who wrote it?", "It was written by Ada.", return_tensors="pt")
with torch.no_grad():
    found = model(**inputs)
begin, end = int(found.start_logits.argmax()), int(found.end_logits.argmax())
print(tokenizer.decode(inputs.input_ids[0, begin : end + 1]))""",
    "GPT2LMHeadModel": """\
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("."), AutoModelForCausalLM.from_pretrained(".")
ids = model.generate(**tokenizer("The cat", return_tensors="pt"), max_new_tokens=40)
print(tokenizer.decode(ids[0], skip_special_tokens=True))""",
    "MarianMTModel": """\
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedTokenizerFast

tokenizer, model = AutoTokenizer.from_pretrained("."), AutoModelForSeq2SeqLM.from_pretrained(".")
target = PreTrainedTokenizerFast.from_pretrained(".{target}")
lines = ["A dog runs."]
ids = model.generate(**tokenizer(lines, return_tensors="pt", padding=True), num_beams=5)
print(*target.batch_decode(ids, skip_special_tokens=True), sep="\\n")""",
}
_CARD = """\
# A model for Hugging Face's transformers

`{architecture}`, written by `attnkit export` from the checkpoint `{checkpoint}`. It needs nothing of attnkit, but
`pip install transformers torch`. Run this inside the folder:

```python
{use}
```

The tokenizer gives the ids that attnkit gives, with one exception: where a text holds the name of a special entry, as
`[SEP]`, transformers takes it for that entry and attnkit for text like any other.
"""
