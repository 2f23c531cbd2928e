"""Attention as an alignment and a distribution function. Example::

    from attnkit.models.attention.alignment import make_alignment
    from attnkit.models.attention.attend import attend
    from attnkit.models.attention.distribution import make_distribution

    align, distribute = make_alignment("deep", d_query, d_key, n_heads=8), make_distribution("sparsemax", d_query)
    context, weights = attend(query, keys, values, align, distribute, mask)  # (B, H, T, d_v), (B, H, T, S)

``multihead.MultiHeadAttention`` accepts the same names, either one for all heads or one per head.
"""
