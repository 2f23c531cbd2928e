"""Names and shapes of a Transformer's parameters. Torch-free."""

from attnkit.models.config import TransformerConfig
from attnkit.models.layer_config import ties_sides

# Letters: D model width, A width of all heads, F inner width, H heads, V words, L layers.


def transformer_shapes(config: TransformerConfig, src_words: int, tgt_words: int) -> dict[str, tuple[int, ...]]:
    """Return name -> shape of the weights of a plain-attention Transformer."""
    d, f, shapes = config.d_model, config.d_ff, dict[str, tuple[int, ...]]()
    a = config.n_heads * config.d_head

    def add_linear(name: str, n_in: int, n_out: int) -> None:
        shapes[f"{name}.weight"] = (n_out, n_in)
        if config.bias:
            shapes[f"{name}.bias"] = (n_out,)

    def add_norm(name: str) -> None:
        shapes[f"{name}.weight"] = (d,)
        if config.normalization == "layer":
            shapes[f"{name}.bias"] = (d,)

    def add_layer(name: str, attentions: dict[str, int]) -> None:
        for attention, n_parts in attentions.items():
            add_linear(f"{name}.{attention}.projection", d, n_parts * a)
            add_linear(f"{name}.{attention}.output", a, d)
        add_linear(f"{name}.feed_forward.up", d, f)
        if config.glu:
            add_linear(f"{name}.feed_forward.gate", d, f)
        add_linear(f"{name}.feed_forward.down", f, d)
        for part in (*attentions, "feed_forward"):
            add_norm(f"{name}.around_{part}.norm")

    for side, n_layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        if side == "encoder" or not ties_sides(config.tie_embeddings):
            shapes[f"{side}.embedding.words.weight"] = (src_words if side == "encoder" else tgt_words, d)
        if config.positions == "learned":
            shapes[f"{side}.embedding.positions.table"] = (config.max_length + config.position_offset, d)
        if config.positions == "relative":
            shapes[f"{side}.own.bias.table"] = (config.relative_buckets, config.n_heads)
        for i in range(n_layers):
            add_layer(f"{side}.layers.{i}", {"attention": 3} if side == "encoder" else {"attention": 3, "cross": 1})
        if config.norm == "pre":
            add_norm(f"{side}.norm")
    for side, normed in (("encoder", config.embedding_norm), ("decoder", config.target_embedding_norm)):
        if normed:
            add_norm(f"{side}.embedding.norm")
    add_linear("decoder.memory", d, 2 * config.decoder_layers * a)
    shapes["output.bias"] = (tgt_words,)
    if config.tie_embeddings in ("none", "inputs"):
        shapes["output.weight"] = (tgt_words, d)
    return shapes
