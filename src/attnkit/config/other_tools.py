"""Words of other tools and the configuration keys that they mean here.

The words are options of fairseq, OpenNMT-py, JoeyNMT, Marian, Nematus, Hugging Face transformers and PEFT, nanoGPT,
gensim and word2vec. Knows no configuration: the caller says which keys exist.
"""

from collections.abc import Callable, Iterable

_LEARNING_RATE = ("optimization.learning_rate", "alpha")  # word vectors have keys of their own
_EPOCHS = ("limits.max_epochs", "epochs")
_WIDTH = ("model.d_model", "model.d_hidden", "dim")
_LAYERS = ("model.n_layers", "model.encoder_layers", "model.decoder_layers")
_FEED_FORWARD = ("model.d_ff",)
_DROPOUT = ("model.dropout",)
_LENGTH = ("data.max_length", "data.sequence_length")
_PARTS: dict[tuple[str, ...], str] = {
    # Optimization.
    _LEARNING_RATE: "lr learning_rate max_lr peak_lr",
    (
        "optimization.min_lr_ratio",
        "min_alpha",
    ): "min_lr min_learning_rate stop_min_lr end_learning_rate learning_rate_min",
    ("optimization.schedule",): (
        "lr_scheduler lr_schedule lr_scheduler_type scheduler scheduling decay_method learning_rate_scheduling"
    ),
    ("optimization.warmup_steps",): "warmup warmup_updates warmup_iters num_warmup_steps learning_rate_warmup",
    ("optimization.warmup_fraction",): "warmup_ratio warmup_proportion",
    ("optimization.batch_tokens",): (
        "batch_size max_tokens batch_max_tokens tokens_per_batch per_device_train_batch_size train_batch_size"
        " batch_type"
    ),
    ("optimization.gradient_accumulation_steps",): (
        "update_freq accum_count accum accumulate_grad_batches batch_multiplier grad_accum gradient_accumulation"
    ),
    ("optimization.clip_norm",): (
        "max_grad_norm grad_clip clip_grad_norm clip_gradients gradient_clip_val gradient_clipping"
    ),
    ("optimization.label_smoothing",): "label_smoothing label_smoothing_factor smoothing",
    ("regularization.r_drop",): "rdrop r_drop rdrop_alpha reg_alpha",
    ("regularization.bpe_dropout",): "bpe_dropout src_subword_alpha tgt_subword_alpha subword_alpha",
    ("optimization.weight_decay",): "weight_decay wd l2",
    ("optimization.betas",): "betas adam_betas adam_beta1 adam_beta2 beta1 beta2",
    ("optimization.eps",): "adam_eps adam_epsilon epsilon",
    ("optimization.ema_decay",): "ema moving_average_decay",
    # Limits, evaluation, checkpoints.
    _EPOCHS: "epochs epoch max_epoch num_epochs n_epochs num_train_epochs iter iters",
    (
        "limits.max_steps",
    ): "max_update max_updates updates train_steps steps num_steps max_iters num_train_steps max_iter",
    ("limits.max_minutes",): "max_time max_hours stop_time_hours",
    ("limits.early_stopping_patience",): "patience early_stopping early_stopping_patience early_stop",
    ("limits.metric",): "best_checkpoint_metric metric_for_best_model early_stopping_metric eval_metric",
    ("evaluation.every_steps",): (
        "eval_steps valid_steps validate_interval_updates validation_freq eval_interval eval_every validate_interval"
    ),
    ("checkpoints.save_every", "save_every"): "save_steps save_interval save_interval_updates save_checkpoint_steps",
    ("checkpoints.keep_last",): "save_total_limit keep_checkpoint keep_last_epochs keep_interval_updates keep_last",
    ("checkpoints.keep_best",): "keep_best_checkpoints keep_best_ckpts keep_best",
    # Model.
    _WIDTH: (
        "hidden_size hidden_dim rnn_size d_model n_embd embed_dim embedding_dim embedding_size emb_dim word_vec_size"
        " dim encoder_embed_dim decoder_embed_dim size vector_size"
    ),
    _LAYERS: "num_layers layers n_layer n_layers num_hidden_layers",
    ("model.encoder_layers", "model.n_layers"): "enc_layers encoder_layers num_encoder_layers",
    ("model.decoder_layers", "model.n_layers"): "dec_layers decoder_layers num_decoder_layers",
    ("model.n_heads",): (
        "heads num_heads n_head n_heads nhead num_attention_heads encoder_attention_heads decoder_attention_heads"
    ),
    _FEED_FORWARD: (
        "ff_size ffn_dim d_ff dim_feedforward transformer_ff intermediate_size encoder_ffn_embed_dim"
        " decoder_ffn_embed_dim"
    ),
    _DROPOUT: "dropout dropout_rate hidden_dropout_prob resid_pdrop embd_pdrop",
    ("model.attention_dropout",): "attention_dropout attn_dropout attn_pdrop attention_probs_dropout_prob",
    ("model.activation_dropout",): "activation_dropout relu_dropout",
    ("model.layer_dropout",): "layerdrop layer_drop encoder_layerdrop decoder_layerdrop stochastic_depth",
    ("model.word_dropout", "noise.word_dropout"): "word_dropout dropout_source dropout_target dropout_src dropout_trg",
    ("model.activation",): "activation activation_fn hidden_act",
    ("model.positions",): "position_encoding pos_enc position_embedding_type",
    ("model.max_length",): "max_position_embeddings n_positions max_source_positions max_target_positions",
    ("model.norm",): "layer_norm encoder_normalize_before normalize_before prenorm",
    ("model.tie_embeddings",): (
        "tied_embeddings tied_softmax share_all_embeddings share_embeddings share_decoder_input_output_embed"
    ),
    ("model.kind",): "arch architecture model_type encoder_type",
    # Adapters, as in PEFT.
    ("adapter.kind",): "adapter adapters lora use_lora use_peft peft_type",
    ("adapter.rank",): "rank r lora_r lora_rank lora_dim",
    ("adapter.alpha",): "lora_alpha",
    ("adapter.dropout",): "lora_dropout",
    ("adapter.maps",): "target_modules lora_target lora_target_modules",
    # Data and vocabulary.
    ("data.src",): "src source train_src src_train trainpref source_lang",
    ("data.tgt",): "tgt target trg train_tgt tgt_train target_lang ref reference references",
    ("data.valid_src",): "valid_src dev_src validpref src_dev",
    ("data.valid_tgt",): "valid_tgt dev_tgt tgt_dev",
    ("data.directions",): "lang_pairs language_pairs",
    ("data.temperature",): "sampling_temperature",
    ("data.files",): "train_file train train_files corpus input",
    ("data.valid_files",): "validation_file valid dev valid_file dev_file",
    _LENGTH: "max_sent_length max_seq_length max_seq_len seq_len seq_length max_len block_size src_seq_length",
    ("vocabulary.size", "data.max_vocab"): (
        "vocab_size src_vocab_size tgt_vocab_size voc_limit bpe_size bpe_operations max_vocab_size max_final_vocab"
    ),
    ("vocabulary.kind",): "level bpe tokenizer_type subword subword_type",
    (
        "vocabulary.min_frequency",
        "data.min_count",
    ): "voc_min_freq min_freq min_frequency src_words_min_frequency threshold",
    ("vocabulary.lowercase", "data.lower"): "lowercase lower do_lower_case",
    ("joint_vocabulary",): "share_vocab joined_dictionary joint_vocab shared_vocab joint_dictionary",
    ("vocabulary_files",): "srcdict tgtdict vocab src_vocab tgt_vocab vocab_file tokenizer_file",
    ("masking.mask_prob",): "mlm_probability mask_prob masked_lm_prob",
    # Search.
    ("decoding.beam_size",): "beam beams num_beams beam_width n_beams beamsize",
    ("decoding.num_hypotheses",): "nbest n_best num_return_sequences return_sequences",
    ("decoding.length_penalty",): "lenpen length_penalty beam_alpha length_normalization",
    ("decoding.sampling",): "do_sample sample_search random_sampling",
    ("decoding.max_length", "max_new_tokens"): "max_output_length max_len_b max_gen_len max_decode_length",
    ("decoding.no_repeat_ngram_size",): "no_repeat_ngram ngram_blocking block_ngram_repeat",
    # Hardware.
    ("device",): "gpu use_cuda cuda cpu gpus",
    ("precision",): "fp16 bf16 amp mixed_precision model_dtype dtype half",
    ("threads",): "workers num_workers thread n_threads num_threads nproc",
    ("seed",): "random_seed manual_seed rng_seed",
    # Word vectors.
    ("method",): "sg cbow algorithm",
    ("loss",): "hs hierarchical_softmax",
    ("negative",): "neg negative_samples num_negatives ns",
    ("sample",): "subsample subsampling",
    ("window",): "window_size ws",
    ("subwords.buckets",): "bucket",
    ("subwords.min_n",): "minn",
    ("subwords.max_n",): "maxn",
    # Flags without a key.
    ("output",): "save_dir output_dir model_dir save_model out_dir save out",
    ("init_from",): "restore_file train_from load_model pretrained_model init_checkpoint resume_from_checkpoint",
    ("overwrite",): "overwrite_output_dir reset force",
    ("quiet",): "silent no_progress_bar disable_tqdm",
    # Sections.
    ("optimization",): "training train_params optim optimizer",
    ("limits",): "stopping stop_conditions",
    ("evaluation",): "validation valid_params",
    ("decoding",): "testing generation inference search",
    ("checkpoints",): "saving checkpoint checkpointing",
}
"""Keys -> words of other tools, separated by spaces. Of several keys, a task has one or more."""
_NOTES = {"optimization.batch_tokens": "it counts tokens, not sentences", "min_alpha": "a rate, not a share"}
"""Remarks on keys whose unit is another one than that of most words for them."""


def _by_word() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for keys, words in _PARTS.items():
        for word in words.split():
            assert word not in found, word
            found[word] = keys
    return found


KEYS = _by_word()
"""Word of another tool -> dotted keys that it may mean."""


def meant_keys(word: str, exists: Callable[[str], bool]) -> list[str]:
    """Return the keys that a word of another tool means, of those that exist.

    Case and hyphens are ignored: ``--max-epoch`` and ``max_epoch`` are the same word.
    """
    return [key for key in KEYS.get(word.strip("-").replace("-", "_").lower(), ()) if exists(key)]


def remark(keys: Iterable[str], word: str) -> str:
    """Return a remark on the unit of the keys in parentheses, or an empty text."""
    notes = [_NOTES[key] for key in keys if key in _NOTES and "token" not in word]
    return f" ({notes[0]})" if notes else ""
