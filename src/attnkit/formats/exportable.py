"""Checks that CTranslate2 or transformers supports a model. Torch-free."""

from typing import Any, Literal

from attnkit.errors import RunError
from attnkit.formats.huggingface.encoder_config import is_distilbert, is_electra
from attnkit.formats.huggingface.llama import LLAMA_KEYS, is_llama
from attnkit.formats.huggingface.modernbert import NAMED, is_modernbert
from attnkit.formats.huggingface.t5 import is_t5
from attnkit.models.config import ModelConfig, TransformerConfig
from attnkit.models.language_config import BertConfig, GptConfig, LanguageConfig
from attnkit.models.layer_config import ROPE_BASE

EXPORTED_TASKS = ("mlm", "clm", "text-classification", "token-classification", "question-answering", "translation")
"""Tasks whose runs can be exported to transformers and CTranslate2."""
CTRANSLATE2_POSITIONS = ("sinusoidal", "fairseq", "learned", "rotary", "relative", "none")
NORM_EPS = 1e-5  #: LayerNorm epsilon of Marian in transformers
_MODERNBERT = f"a ModernBERT, with local_window and {NAMED}"
Quantization = Literal["float32", "float16", "bfloat16", "int16", "int8"]  #: number types of CTranslate2
Coded = Literal["m2m_100", "mbart"]  #: model types with a code of the language before each text
_OF_MARIAN: dict[str, object] = {
    "glu": False,
    "bias": True,
    "normalization": "layer",
    "head_width": None,
    "scaled_input": True,
    "scaled_output": False,
    "output_bias": True,
}
"""What a Marian has, by key."""
_FUNCTIONS, _PLAIN = "model.alignment, model.distribution", "alignment scaled_dot with distribution softmax"
_OTHER_ATTENTION = "attention other than scaled_dot with softmax"


def _refuse(system: str, *checks: tuple[object, str, str, str]) -> None:
    """Raise ``RunError`` for the first true check: (applies, key, lacking, taken)."""
    for applies, key, lacking, taken in checks:
        if applies:
            raise RunError(f"{system} does not support {lacking}", where=key, help=f"supported: {taken}")


def check_huggingface(config: Any) -> None:
    """Check that transformers supports a run; raise ``RunError`` if not."""
    task, model, tasks = config.task, config.model, f"tasks {', '.join(EXPORTED_TASKS)}"
    _refuse("transformers", (task not in EXPORTED_TASKS, "task", f"runs of task '{task}'", tasks))
    if task == "translation":
        if coded_kind(model) is None and not is_t5(model):
            return check_marian(model)
        kind, taken = config.vocabulary.kind, "vocabularies of imported M2M100, NLLB-200, mBART-50, T5 and mT5"
        checked = kind != "sentencepiece", "vocabulary.kind", f"this model with a vocabulary of kind '{kind}'", taken
        return _refuse("transformers", checked)
    backwards = getattr(config, "direction", "") == "right-to-left"
    _refuse(
        "transformers",
        (model.kind not in ("bert", "gpt"), "model.kind", f"classifiers of kind '{model.kind}'", "kind bert"),
        (backwards, "direction", "right-to-left GPT-2", "direction left-to-right"),
    )
    check_language(model)


def check_language(config: LanguageConfig) -> None:
    """Check that transformers supports a BERT or GPT-2; raise ``RunError`` if not."""
    bert = isinstance(config, BertConfig)
    if isinstance(config, GptConfig) and is_llama(config):
        return
    if isinstance(config, BertConfig) and is_modernbert(config):
        return
    name, norm = ("BERT", "post") if bert else ("GPT-2", "pre")
    kinds = ["learned", "sinusoidal", *(["rotary"] if bert else [])]
    listed = f"{', '.join(kinds[:-1])} and {kinds[-1]} positions"
    unlike, attention = config.positions not in kinds, _OTHER_ATTENTION
    if isinstance(config, BertConfig):
        _check_modernbert(config)
    own_width, width = config.head_width not in (None, config.d_model / config.n_heads), "a head_width of its own"
    checks = (
        (config.norm != norm, "model.norm", f"{name} with norm '{config.norm}'", f"norm {norm}"),
        (unlike, "model.positions", f"{name} with {config.positions} positions", listed),
        (config.glu, "model.glu", f"{name} with gated units", "glu false"),
        (not config.bias, "model.bias", f"{name} without biases", "bias true"),
        (config.normalization == "rms", "model.normalization", f"{name} with RMSNorm", "normalization layer"),
        (config.n_kept_heads != config.n_heads, "model.n_key_value_heads", f"{name} with grouped heads", "n_heads"),
        (own_width, "model.head_width", f"{name} with {width}", "head_width null, with d_model a multiple of n_heads"),
        (config.rope_base != ROPE_BASE, "model.rope_base", f"{name} with another rope_base", f"rope_base {ROPE_BASE}"),
    )
    other = f"; or {_MODERNBERT}" if bert else f"; or a Llama's, {LLAMA_KEYS}"
    _refuse("transformers", *((applies, key, lacking, taken + other) for applies, key, lacking, taken in checks))
    _refuse("transformers", (not config.plain_attention, _FUNCTIONS, f"{name} with {attention}", _PLAIN))
    if isinstance(config, BertConfig):
        _check_pooler(config)


def _check_modernbert(config: BertConfig) -> None:
    """Check that a model without what every ModernBERT has needs nothing of it."""
    parts = (
        ("local_window", config.local_window is not None, "local layers"),
        ("embedding_norm", config.embedding_norm, "normalized embeddings of a pre-norm model"),
        ("norm_bias", not config.norm_bias, "norms without biases"),
        ("head_bias", not config.head_bias, "a masked-LM head without biases"),
        ("pooler", config.pooler == "mlm_head", "pooler mlm_head"),
        ("pooling", config.pooling == "mean", "pooling mean"),
    )
    _refuse("transformers", *((on, f"model.{key}", f"BERT with {what}", _MODERNBERT) for key, on, what in parts))


def _check_pooler(config: BertConfig) -> None:
    """Check that a model type has the pooler of a BERT, and its width of embeddings."""
    electra = "pooler gelu, activation gelu and learned positions, as ELECTRA has"
    distilbert = "pooler relu with n_segments 1 and norm_eps 1e-12, as DistilBERT has"
    narrow, key = config.d_embedding is not None, "model.pooler"
    _refuse(
        "transformers",
        (config.pooler == "tanh" and config.positions == "rotary", key, "RoFormer with pooler tanh", "pooler auto"),
        ((config.pooler == "gelu" or narrow) and not is_electra(config), key, "such an ELECTRA", electra),
        (config.pooler == "relu" and not is_distilbert(config), key, "such a DistilBERT", distilbert),
    )


def coded_kind(config: ModelConfig) -> Coded | None:
    """Return the model type with language codes that a model is, or None."""
    if not isinstance(config, TransformerConfig) or not config.plain_attention or config.pattern != "none":
        return None
    if (config.norm, config.decoder_start, config.tie_embeddings, config.norm_eps) != ("pre", "eos", "all", NORM_EPS):
        return None
    normed = config.embedding_norm, config.target_embedding_norm
    if config.positions == "fairseq" and normed == (False, False):
        return "m2m_100"
    if config.positions == "learned" and config.position_offset == 2 and normed == (True, True):
        return "mbart"
    return None


def check_marian(config: ModelConfig, system: str = "transformers", norm_eps: tuple[float, ...] = (NORM_EPS,)) -> None:
    """Check that a translator is a Marian; raise ``RunError`` naming ``system``."""
    if not isinstance(config, TransformerConfig):
        lacking = f"translation models of kind '{config.kind}'"
        return _refuse(system, (True, "model.kind", lacking, "kind transformer"))
    positions, attention = config.positions, _OTHER_ATTENTION
    normed = (config.embedding_norm, "embedding_norm"), (config.target_embedding_norm, "target_embedding_norm")
    many = coded_kind(config) is not None
    many, named = many or is_t5(config), "T5 and mT5" if is_t5(config) else "M2M100, NLLB-200 and mBART-50"
    other = (many, "model.positions", named, "translators in Marian's layout")
    _refuse("this export" if system == "transformers" else system, other)
    _refuse(
        system,
        (config.norm != "post", "model.norm", "Marian with pre-norm sublayers", "norm post"),
        (positions != "sinusoidal", "model.positions", f"Marian with {positions} positions", "sinusoidal positions"),
        (not config.plain_attention, _FUNCTIONS, f"Marian with {attention}", _PLAIN),
        (config.pattern != "none", "model.pattern", "Marian with sparse attention patterns", "pattern none"),
        *((on, f"model.{key}", "Marian with normalized embeddings", f"{key} false") for on, key in normed),
        (config.norm_eps not in norm_eps, "model.norm_eps", f"Marian with norm_eps {config.norm_eps}", "norm_eps 1e-5"),
        *(
            (
                getattr(config, key) != usual,
                f"model.{key}",
                f"Marian with {key} {getattr(config, key)}",
                f"{key} {usual}",
            )
            for key, usual in _OF_MARIAN.items()
        ),
        (
            config.tie_embeddings == "inputs",
            "model.tie_embeddings",
            "Marian with an output layer of its own",
            "tie_embeddings all, target or none",
        ),
    )


def check_ctranslate2(config: Any) -> None:
    """Check that CTranslate2 supports a run; raise ``RunError`` if not."""
    task, model, tasks = config.task, config.model, f"tasks {', '.join(EXPORTED_TASKS)}"
    _refuse("CTranslate2", (task not in EXPORTED_TASKS, "task", f"runs of task '{task}'", tasks))
    if task == "translation":
        check_ctranslate2_translator(model)
        return
    backwards = getattr(config, "direction", "") == "right-to-left"
    _refuse(
        "CTranslate2",
        (model.kind not in ("bert", "gpt"), "model.kind", f"classifiers of kind '{model.kind}'", "kind bert"),
        (backwards, "direction", "generators from right to left", "direction left-to-right"),
    )
    _refuse("CTranslate2", (not model.plain_attention, _FUNCTIONS, _OTHER_ATTENTION, f"{_PLAIN}, in every head"))
    if isinstance(model, BertConfig):
        _check_encoder(model, task)


def _check_encoder(config: BertConfig, task: str) -> None:
    """Check that CTranslate2 supports a BERT with the head of a task."""
    positions, local = config.positions, any(map(config.is_local, range(config.n_layers)))
    shared = config.pooler == "mlm_head" and task != "mlm"
    mean = config.pooling == "mean" and task == "text-classification"
    _refuse(
        "CTranslate2",
        (positions == "alibi", "model.positions", "encoders with alibi positions", "learned, sinusoidal, rotary"),
        (local, "model.local_window", "local layers, as of ModernBERT", "local_window null"),
        (config.embedding_norm, "model.embedding_norm", "pre-norm encoders with it", "embedding_norm false"),
        (config.d_embedding is not None, "model.d_embedding", "embeddings of another width", "d_embedding null"),
        (shared, "model.pooler", "a masked-LM head below the output", "pooler auto, tanh, relu or gelu"),
        (mean, "model.pooling", "a pooler of the mean of all tokens", "pooling first"),
    )


def check_ctranslate2_translator(config: ModelConfig) -> TransformerConfig:
    """Return ``config`` if CTranslate2 supports it; raise ``RunError`` if not."""
    if not isinstance(config, TransformerConfig):
        what = f"CTranslate2 does not support models of kind '{config.kind}'"
        raise RunError(what, where="model.kind", help="supported: --model transformer")
    plain, positions, listed = config.score_scale is not None, config.positions, ", ".join(CTRANSLATE2_POSITIONS)
    _refuse(
        "CTranslate2",
        (not plain, _FUNCTIONS, _OTHER_ATTENTION, f"{_PLAIN} (or dot), in every head"),
        (config.pattern != "none", "model.pattern", "sparse attention patterns", "pattern none"),
        (positions not in CTRANSLATE2_POSITIONS, "model.positions", f"encoders with {positions} positions", listed),
    )
    return config
