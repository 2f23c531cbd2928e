"""Export of runs to Hugging Face transformers: config, weights, tokenizer, README."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.conversion.export_coded import coded_contents
from attnkit.conversion.export_contents import ExportContents
from attnkit.conversion.export_ctranslate2 import ExportResult, check_empty, n_bytes_of, new_folder, open_exportable
from attnkit.conversion.export_t5 import t5_contents
from attnkit.conversion.export_translator import marian_contents
from attnkit.conversion.vocabulary_files import separators
from attnkit.engine.checkpoint_metadata import read_labels
from attnkit.engine.loading import load_model
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import RunError
from attnkit.formats.exportable import check_huggingface, coded_kind
from attnkit.formats.huggingface import config as configs
from attnkit.formats.huggingface import layout, translation_layout
from attnkit.formats.huggingface import tokenizer as tokens
from attnkit.formats.huggingface.llama import LLAMAS, is_llama, llama_json
from attnkit.formats.huggingface.t5 import is_t5
from attnkit.io import atomic
from attnkit.io.safe_read import parse_json
from attnkit.models.language_config import BertConfig, GptConfig, LanguageConfig
from attnkit.models.positions import rotations, sinusoids
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID
from attnkit.tasks.language_modeling.config import MASK
from attnkit.tasks.translation.directions import first_direction
from attnkit.tasks.translation.loading import load_run
from attnkit.text.origin import Origin
from attnkit.text.tokenizer import Tokenizer

Tree = dict[str, Any]
_ROLES = (("pad", PAD_ID), ("bos", BOS_ID), ("eos", EOS_ID))
_MODERNBERT_ROLES = (*_ROLES, ("cls", BOS_ID), ("sep", EOS_ID))
_SET_APART = (
    "training has set BOS and EOS apart, which are one entry of GPT-2: exported as two, with tokenizer files of attnkit"
)
_NO_JUDGE = "the next-sentence head is not exported: {} in transformers has none"
_NO_GENERATOR = "the generator is not exported"
_NO_DETECTOR = "neither the generator nor the head that detects replacements is exported: {} in transformers has none"
LONGEST = 1024  #: maximum tokens per side of an exported translation model


def export_huggingface(run: Path, folder: Path, *, checkpoint: str | None = None) -> ExportResult:
    """Export a BERT, fine-tuned BERT, GPT or translation run to transformers.

    A BERT with rotary positions becomes a RoFormer, for which transformers has no next-sentence head. Raises
    ``RunError`` if the run is missing, damaged or not supported by transformers, ``UsageError`` if the folder is not
    empty.
    """
    check_empty(folder)
    chosen, task, warnings = open_exportable(run, checkpoint, check_huggingface)
    made = (_translation if task == "translation" else _language)(run, chosen, task)
    made.trees["config.json"]["dtype"] = "float32"
    with new_folder(folder) as temporary:
        for name, tree in made.trees.items():
            atomic.make_dirs((temporary / name).parent)
            content = json.dumps(tree, indent=2, ensure_ascii=False) + "\n"
            atomic.write_new_file(temporary / name, content.encode())
        for name, data in made.files.items():
            atomic.write_new_file(temporary / name, data)
        data = safetensors.torch.save(made.tensors, metadata={"format": "pt"})
        atomic.write_new_file(temporary / "model.safetensors", data)
        architecture = made.trees["config.json"]["architectures"][0]
        card = _CARD.format(architecture=architecture, checkpoint=chosen.name, use=made.use)
        atomic.write_new_file(temporary / "README.md", card.encode())
    return ExportResult(folder, chosen.name, n_bytes_of(folder), (*warnings, *made.warnings))


def _language(run: Path, chosen: Checkpoint, task: str) -> ExportContents:
    """Convert a BERT, with or without a fine-tuned task head, or a GPT."""
    opened = load_model(run, task, device="cpu", checkpoint=chosen.name)
    head = layout.HEADS.get(task)
    config: Any = opened.config.model
    if config.positions != "learned":  # exported position tables cover the training length
        length = opened.config.data.sequence_length if head is None else opened.config.max_row_length
        config = config.model_copy(update={"max_length": max(config.max_length, length)})
    tokenizer = read_tokenizer(chosen)
    if task != "clm":
        labels = read_labels(chosen).labels if task in ("text-classification", "token-classification") else ()
        return _encoder(config, task, opened.model.state_dict(), tokenizer, labels)
    if is_llama(config):
        return _llama(config, opened.model.state_dict(), tokenizer)
    return _gpt2(config, opened.model.state_dict(), tokenizer)


def _gpt2(config: GptConfig, state: dict[str, Tensor], tokenizer: Tokenizer) -> ExportContents:
    """Convert a GPT; an imported GPT-2 whose BOS equals EOS leaves as it came."""
    links, origin, use = layout.gpt_body(config) + layout.gpt_head(config), tokenizer.origin, _USES["GPT2LMHeadModel"]
    tables, warnings = _tables(config, "transformer."), list[str]()
    if origin is not None and origin.model == "gpt2":
        if layout.keeps_shared_rows(state, origin.order):
            tree = configs.gpt_json(config, origin.n_rows)
            tensors = layout.to_theirs(links, layout.in_order(state, origin.order, 0))
            return _as_imported(tree, tensors | tables, use, origin)
        warnings.append(_SET_APART)
    trees = {
        "config.json": configs.gpt_json(config, tokenizer.vocab_size),
        "generation_config.json": configs.generation_json(),
        **tokenizer_files(tokenizer, tokens.GPT, config.max_length),
    }
    return ExportContents(trees, layout.to_theirs(links, state) | tables, use, tuple(warnings))


def _as_imported(tree: Tree, tensors: dict[str, Tensor], use: str, origin: Origin) -> ExportContents:
    """Return the contents of a generator with the ids and files of its import."""
    ids = {f"{role}_token_id": origin.order[id] for role, id in _ROLES}
    trees: dict[str, Tree] = {"config.json": tree | ids, "generation_config.json": dict(ids)}
    try:
        return ExportContents(trees, tensors, use, (), origin.files())
    except ValueError as error:
        raise RunError(str(error), where="tokenizer.json") from error


def _llama(config: GptConfig, state: dict[str, Tensor], tokenizer: Tokenizer) -> ExportContents:
    """Convert a Llama or Mistral; imported ones get their ids and files back."""
    links, origin, use = layout.llama_body(config) + layout.gpt_head(config), tokenizer.origin, _USES["GPT2LMHeadModel"]
    activation = configs.ACTIVATIONS[config.activation]
    if origin is None or origin.model not in LLAMAS:
        ids: dict[str, int | None] = {f"{role}_token_id": id for role, id in _ROLES}
        trees = {
            "config.json": llama_json(config, tokenizer.vocab_size, activation, ids),
            "generation_config.json": configs.generation_json(),
            **tokenizer_files(tokenizer, tokens.GPT, config.max_length),
        }
        return ExportContents(trees, layout.to_theirs(links, state), use)
    kind = "llama" if config.bias else origin.model  # Mistral has no biases
    tree = llama_json(config, origin.n_rows, activation, {}, kind)
    return _as_imported(tree, layout.to_theirs(links, layout.in_order(state, origin.order, 0)), use, origin)


def _encoder(
    config: BertConfig, task: str, state: dict[str, Tensor], tokenizer: Tokenizer, labels: Sequence[str]
) -> ExportContents:
    """Convert a BERT; an imported one gets its model type, ids and files back."""
    origin, head = tokenizer.origin, layout.HEADS.get(task)
    if origin is not None and not layout.fits(config, origin.model):
        origin = None
    kind = layout.body_kind(config) if origin is None else origin.model
    follows = task == "mlm" and config.next_sentence
    detects = "detector.output.weight" in state  # an ELECTRA, of which the encoder is exported
    # Without a head, the body's tensors have no prefix.
    prefix = "" if detects and kind != "electra" else layout.PREFIXES[kind]
    body = layout.bert_body(config, prefix)
    if detects:
        links = layout.with_prefix("encoder", body) + (layout.detection_head() if kind == "electra" else [])
        end = "ForPreTraining" if kind == "electra" else "Model"
    elif head is None:
        end = "ForPreTraining" if follows and kind == "bert" else "ForMaskedLM"
        links = body + layout.bert_head(config, kind)
        links += layout.next_sentence() if end == "ForPreTraining" else []
    else:
        links, end = layout.with_prefix("encoder", body) + layout.head_of(task, kind, config), f"For{head}"
    n_rows, first = tokenizer.vocab_size, 0
    if origin is not None:
        n_rows, first = origin.n_rows, configs.first_position(kind, origin.order[PAD_ID])
        state = layout.in_order(state, origin.order, first)
    tensors = layout.to_theirs(links, state) | _tables(config, prefix)
    for bias in [name for name in tensors if name.endswith(".decoder.bias")]:
        tensors[layout.other_bias(bias)] = tensors[bias].clone()  # unused, but expected by transformers
    described = configs.bert_json(config, kind, n_rows, configs.CLASSES[kind] + end, labels)
    ids = range(n_rows) if origin is None else origin.order
    if origin is not None or kind == "modernbert":  # whose default ids are those of its own vocabulary
        roles = _MODERNBERT_ROLES if kind == "modernbert" else _ROLES
        described |= {f"{role}_token_id": ids[id] for role, id in roles}
    warnings = (_NO_JUDGE.format(configs.CLASSES[kind]),) if follows and kind != "bert" else ()
    if detects:
        warnings = (_NO_GENERATOR if kind == "electra" else _NO_DETECTOR.format(configs.CLASSES[kind]),)
    use = _USES["BertModel" if detects else f"Bert{end}"]
    if origin is None and tokenizer.pieces is not None:
        what, help = "a SentencePiece vocabulary leaves with an XLM-RoBERTa alone", "supported: learned positions"
        raise RunError(what, where="model.positions", help=help)
    if origin is None:
        names = tokens.bert_roles(config.separators, segments=config.n_segments > 1)
        trees = {"config.json": described, **tokenizer_files(tokenizer, names, config.max_length)}
        return ExportContents(trees, tensors, use, warnings)
    described["max_position_embeddings"] += first
    try:
        files = origin.files()
        n_between = separators(parse_json(files.get("tokenizer.json", b"{}")), kind)
    except (ValueError, AttributeError) as error:
        raise RunError(f"the imported tokenizer is damaged: {error}", where="tokenizer.json") from error
    if n_between != config.separators and task in ("text-classification", "question-answering"):
        both = f"{n_between} between two texts, the model was fine-tuned with {config.separators}"
        warnings = (*warnings, f"the number of separators differs: the imported tokenizer puts {both}")
    return ExportContents({"config.json": described}, tensors, use, warnings, files)


def _tables(config: LanguageConfig, prefix: str) -> dict[str, Tensor]:
    """Return the fixed position and segment tables that only transformers stores."""
    tables: dict[str, Tensor] = {}
    if isinstance(config, BertConfig) and layout.body_kind(config) == "modernbert":
        return tables
    if config.positions == "rotary":
        tables[prefix + layout.ROTATION] = rotations(config.max_length, config.d_model // config.n_heads)
    if config.positions == "sinusoidal":
        table = sinusoids(0, config.max_length, like=torch.empty(0, config.d_model)).clone()
        tables[prefix + layout.POSITIONS["bert" if isinstance(config, BertConfig) else "gpt2"]] = table
    if isinstance(config, BertConfig) and config.n_segments == 1 and layout.body_kind(config) != "distilbert":
        tables[prefix + layout.SEGMENTS] = torch.zeros(1, config.embedding_width)
    return tables


def _translation(run: Path, chosen: Checkpoint, task: str) -> ExportContents:
    """Convert a translation model to Marian, or back to what it came from."""
    loaded = load_run(run, device="cpu", checkpoint=chosen.name)
    config, direction = loaded.config.model, first_direction(loaded)
    src, tgt = direction.src_tokenizer, direction.tgt_tokenizer
    assert config.kind == "transformer" and task == "translation"
    coded = coded_kind(config)
    if src.pieces is not None and is_t5(config):
        return t5_contents(loaded, config, src.pieces)
    if src.pieces is not None and tgt.pieces is not None:
        if coded is not None:
            return coded_contents(loaded, config, coded, src.pieces, tgt.pieces)
        return marian_contents(loaded, config, src.pieces, tgt.pieces)
    trees = {
        "config.json": configs.marian_json(config, (src.vocab_size, tgt.vocab_size), LONGEST),
        "generation_config.json": configs.generation_json(LONGEST // 4, config),
        **tokenizer_files(src, tokens.MARIAN, LONGEST),
    }
    if tgt is not src:
        files = tokenizer_files(tgt, tokens.MARIAN, LONGEST)
        trees |= {f"target/{name}": tree for name, tree in files.items()}
    state = {name: tensor.detach() for name, tensor in loaded.model.state_dict().items()}
    use = _USES["MarianMTModel"].format(target="" if src is tgt else "/target")
    return ExportContents(trees, translation_layout.to_marian(config, state), use)


def tokenizer_files(tokenizer: Tokenizer, roles: tokens.Roles, longest: int | None) -> dict[str, Tree]:
    """Return the JSON files, by name, of a tokenizer that produces the same ids."""
    mask = MASK if roles.names == tokens.BERT.names and MASK in tokenizer.config.symbols else None
    tree = json.loads(tokenizer.to_json())["tokenizer"]
    return tokens.files(tokenizer.config, tree, roles, mask, longest)


_FILL = """\
from transformers import pipeline

fill = pipeline("fill-mask", model=".")
for guess in fill(f"The cat sat on the {fill.tokenizer.mask_token}."):
    print(f"{guess['score']:.3f} {guess['token_str']}")"""
_USES = {
    "BertModel": """\
import torch
from transformers import AutoModel, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("."), AutoModel.from_pretrained(".")
with torch.no_grad():
    features = model(**tokenizer("The cat sat on the mat.", return_tensors="pt")).last_hidden_state
print(features.shape)""",
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

`{architecture}`, written by `attnkit export` from the checkpoint `{checkpoint}`. It does not need attnkit, only
`pip install transformers torch`. Run this inside the folder:

```python
{use}
```

The tokenizer cuts text as attnkit does, with one exception: if a text contains the name of a special token, e.g.
`[SEP]`, transformers reads it as that token, attnkit as ordinary text.
"""
