"""attnkit: a translation and pretraining toolkit, for the command line and Python.

``import attnkit`` is cheap: torch is imported by the first call that needs it.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnkit.library.attention import attend, compare_alignments
    from attnkit.library.autoencoder import AutoEncoder
    from attnkit.library.classifiers import QuestionAnswering, TextClassifier, TokenClassifier
    from attnkit.library.corpora import align, check, clean, score_bleu, toy_corpus, vocab
    from attnkit.library.language_models import CausalLM, MaskedLM
    from attnkit.library.lessons import explain_mask, explain_pooling, explain_positions, licenses, run_demo
    from attnkit.library.loading import load, load_module
    from attnkit.library.results import confusion, curves, project
    from attnkit.library.runs import average, compare, compare_lm, export, import_run, list_runs, report, sweep, verify
    from attnkit.library.synthetic import augment, back_translate, distill
    from attnkit.library.training import (
        finetune,
        plan,
        pretrain_clm,
        pretrain_mlm,
        train,
        train_autoencoder,
        train_classifier,
        word2vec,
    )
    from attnkit.library.translation import Translator
    from attnkit.library.word_vectors import cluster, compare_context, compare_one_hot, evaluate_vectors, phrases
    from attnkit.serving.serve import serve
    from attnkit.tasks.word2vec.fit import Word2Vec
    from attnkit.tasks.word2vec.vectors import Vectors

    __version__: str

# On CPU, torch caches 1,024 compiled matrix products and oneDNN as many again, each with its buffers. In training,
# shapes keep changing, and caching them takes gigabytes. Decoding repeats its shapes and is a fifth slower with 64
# entries. Torch reads the first variable when it is loaded, so both are set here.
for _name in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
    os.environ.setdefault(_name, "128")

__all__ = [
    "AutoEncoder",
    "CausalLM",
    "MaskedLM",
    "QuestionAnswering",
    "TextClassifier",
    "TokenClassifier",
    "Translator",
    "Vectors",
    "Word2Vec",
    "__version__",
    "align",
    "attend",
    "augment",
    "average",
    "back_translate",
    "check",
    "clean",
    "cluster",
    "compare",
    "compare_alignments",
    "compare_context",
    "compare_lm",
    "compare_one_hot",
    "confusion",
    "curves",
    "distill",
    "evaluate_vectors",
    "explain_mask",
    "explain_pooling",
    "explain_positions",
    "export",
    "finetune",
    "import_run",
    "licenses",
    "list_runs",
    "load",
    "load_module",
    "phrases",
    "plan",
    "pretrain_clm",
    "pretrain_mlm",
    "project",
    "report",
    "run_demo",
    "score_bleu",
    "serve",
    "sweep",
    "toy_corpus",
    "train",
    "train_autoencoder",
    "train_classifier",
    "verify",
    "vocab",
    "word2vec",
]
_MODULES = {
    "attend": "library.attention",
    "compare_alignments": "library.attention",
    "AutoEncoder": "library.autoencoder",
    "QuestionAnswering": "library.classifiers",
    "TextClassifier": "library.classifiers",
    "TokenClassifier": "library.classifiers",
    "align": "library.corpora",
    "check": "library.corpora",
    "clean": "library.corpora",
    "score_bleu": "library.corpora",
    "toy_corpus": "library.corpora",
    "vocab": "library.corpora",
    "CausalLM": "library.language_models",
    "MaskedLM": "library.language_models",
    "explain_mask": "library.lessons",
    "explain_pooling": "library.lessons",
    "explain_positions": "library.lessons",
    "licenses": "library.lessons",
    "run_demo": "library.lessons",
    "load": "library.loading",
    "load_module": "library.loading",
    "confusion": "library.results",
    "curves": "library.results",
    "project": "library.results",
    "average": "library.runs",
    "compare": "library.runs",
    "compare_lm": "library.runs",
    "export": "library.runs",
    "import_run": "library.runs",
    "list_runs": "library.runs",
    "report": "library.runs",
    "sweep": "library.runs",
    "verify": "library.runs",
    "augment": "library.synthetic",
    "back_translate": "library.synthetic",
    "distill": "library.synthetic",
    "finetune": "library.training",
    "plan": "library.training",
    "pretrain_clm": "library.training",
    "pretrain_mlm": "library.training",
    "train": "library.training",
    "train_autoencoder": "library.training",
    "train_classifier": "library.training",
    "word2vec": "library.training",
    "Translator": "library.translation",
    "cluster": "library.word_vectors",
    "compare_context": "library.word_vectors",
    "compare_one_hot": "library.word_vectors",
    "evaluate_vectors": "library.word_vectors",
    "phrases": "library.word_vectors",
    "serve": "serving.serve",
    "Word2Vec": "tasks.word2vec.fit",
    "Vectors": "tasks.word2vec.vectors",
}
"""Name -> its module below ``attnkit``, imported on first use."""


def __getattr__(name: str) -> Any:
    """Import a class or a function, or look up the version, on access."""
    if name in _MODULES:
        return getattr(import_module(f"attnkit.{_MODULES[name]}"), name)
    if name == "__version__":
        from attnkit.runtime.version import installed_version

        return installed_version()
    raise AttributeError(f"module 'attnkit' has no attribute {name!r}")
