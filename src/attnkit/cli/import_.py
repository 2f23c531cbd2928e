"""``attnkit import``: conversion of another system's model to a run."""

from json import dumps
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from attnkit.cli.options import Json, RunOutput


def command(
    system: Annotated[
        Literal["huggingface", "peft"], Argument(help="Source system: huggingface or peft.", metavar="SYSTEM")
    ],
    folder: Annotated[Path, Argument(help="Local folder of the model.", metavar="DIR")],
    output: RunOutput,
    base: Annotated[Path | None, Option(help="Run that the adapter adapts (peft only).", metavar="RUN")] = None,
    src_lang: Annotated[
        str | None, Option(help="Source language of M2M100, NLLB-200 or mBART-50, e.g. eng_Latn.", metavar="LANG")
    ] = None,
    tgt_lang: Annotated[
        str | None, Option(help="Target language of M2M100, NLLB-200 or mBART-50, e.g. deu_Latn.", metavar="LANG")
    ] = None,
    source_prefix: Annotated[
        str, Option(help="Text before all sources, by which a T5 or mT5 knows what to do.", metavar="TEXT")
    ] = "",
    prune_vocab: Annotated[
        list[Path] | None,
        Option(
            help="Text whose entries the vocabulary keeps (translators only); may be given several times.",
            metavar="FILE",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Import a model from another system as a run.

    Supported models are BERT, RoFormer, RoBERTa, XLM-RoBERTa, DistilBERT, ELECTRA, ModernBERT, GPT-2, Llama, Mistral,
    Marian (OPUS-MT), M2M100, NLLB-200, mBART-50, T5 (also v1.1 and Flan-T5) and mT5 of Hugging Face transformers, in a
    folder written by save_pretrained: config.json, model.safetensors or pytorch_model.bin, or their shards, and a
    tokenizer. Nothing is downloaded, and no pickle is loaded: of pytorch_model.bin, only the tensors are read. An
    imported run cannot be resumed; pass it to --init-from or finetune. The head and the labels of a model fine-tuned
    for classification, tagging or question answering are imported too, for predict.

    --prune-vocab leaves out what the given texts do not use, e.g. of an NLLB-200 for one pair of languages. These texts
    are cut as before; give text of both languages, as similar as you have to what is to be translated. The run then
    serves the languages of these texts only.

    M2M100, NLLB-200 and mBART-50 translate from --src-lang into --tgt-lang, unless "attnkit translate" names others of
    their languages. Imported without these options, they have no usual languages, and each command needs both.

    --source-prefix is kept in the run: translate, train, score and serve put it before each source. Without, lines are
    translated as they are, e.g. with such words of their own.

    An adapter (LoRA) in PEFT's format, for the model that --base was imported from or is exported to, becomes a run of
    the same task.

    \b
    Examples:
      attnkit import huggingface bert-base-uncased -o bert
      attnkit fill-mask bert "The cat sat on the [MASK]."
      attnkit pretrain-mlm more.txt -o own --init-from bert
      attnkit import peft lora-peft --base run -o own
      attnkit import huggingface opus-mt-en-de -o en-de
      attnkit import huggingface nllb-200-distilled-600M -o nllb \\
        --src-lang eng_Latn --tgt-lang deu_Latn
      attnkit translate nllb -i test.fr --src-lang fra_Latn
      attnkit import huggingface nllb-200-distilled-600M -o nllb-en-de \\
        --src-lang eng_Latn --tgt-lang deu_Latn \\
        --prune-vocab train.en --prune-vocab train.de
      attnkit import huggingface t5-small -o t5 \\
        --source-prefix "translate English to German:"
    """
    from attnkit.errors import UsageError

    if (system == "peft") != (base is not None):
        what = "an adapter needs the run that it adapts" if base is None else "--base belongs to peft"
        raise UsageError(what, where="--base", help="attnkit import peft DIR --base RUN -o RUN")
    if base is not None and source_prefix:
        raise UsageError("an adapter has the prefix of its base", where="--source-prefix", help="leave it out")
    if base is not None and prune_vocab:
        raise UsageError("an adapter has the vocabulary of its base", where="--prune-vocab", help="leave it out")
    from attnkit.plotting.progress_text import count
    from attnkit.progress import console

    if base is not None:
        from attnkit.conversion.adapters import import_peft

        done = import_peft(folder, base, output)
    else:
        from attnkit.conversion.import_huggingface import import_huggingface

        kept, languages = prune_vocab or [], {"src_lang": src_lang, "tgt_lang": tgt_lang}
        done = import_huggingface(folder, output, **languages, prune_vocab=kept, source_prefix=source_prefix)
    for text in done.warnings:
        console.warn(text)
    if json:
        console.result(dumps(done.to_dict()))
    else:
        if prune_vocab:
            n_before = done.n_pruned + done.vocab_size
            saved = f"{done.n_pruned:,} of {n_before:,} entries, {done.n_pruned_bytes / 1e6:,.1f} MB"
            console.result(f"pruned {saved}")
        size = f"{count(done.n_parameters)} parameters, {done.vocab_size:,} entries"
        words = done.command.split()
        n_words = next((n for n, word in enumerate(words) if word.startswith("--")), len(words))
        shown = console.command(*words[:n_words], done.path, *words[n_words:])
        console.result(f"wrote {done.path} ({size})\ntry: {shown}")
