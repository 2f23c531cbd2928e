"""Hierarchical attention network for document classification (Yang et al. 2016).

Attention first weights the words of each sentence, then the sentences of the document. The sentences of all documents
form one batch, so no document is padded to the number of sentences of another one.

Letters: B documents, S sentences of the longest document, N sentences of all documents, W words of the longest
sentence, d width of a state, L labels.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from attnkit.models.attention.alignment import make_alignment
from attnkit.models.attention.attend import AttentionFunction, AttentionScope
from attnkit.models.attention.distribution import make_distribution, softmax
from attnkit.models.linear import Dropout, Linear, init_xavier, without_dropout
from attnkit.models.recurrent import RecurrentEncoder
from attnkit.models.recurrent_config import HanConfig


class AttentionPooling(nn.Module):
    """Attention pooling of h with a learned context c: softmax(tanh(W h + b)·c).

    See Yang et al. 2016, equations 5 to 7 for words and 8 to 10 for sentences. Other attention functions use c as the
    query and tanh(W h + b) as keys.
    """

    def __init__(self, d_state: int, config: HanConfig) -> None:
        super().__init__()
        d_attention, options = config.d_attention, config.attention_options
        self.plain = config.plain_attention
        self.project = Linear(d_state, d_attention)
        self.context = nn.Parameter(torch.empty(d_attention))
        init_xavier(self.project)
        nn.init.normal_(self.context, std=d_attention**-0.5)
        self.align = make_alignment(config.alignment, d_attention, d_attention, options)
        self.distribute = make_distribution(config.distribution, d_attention, options)

    def forward(self, states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return pooled states (B, d) and weights (B, S) for states (B, S, d).

        ``mask`` (B, S) is False at padding, where weights are exactly 0; fully masked rows give zeros.
        """
        keys = torch.tanh(self.project(states))  # (B, S, d_attention), equation 5
        if self.plain:
            weights = softmax(keys @ self.context, states, mask)
        else:
            query = self.context.expand(len(keys), 1, 1, -1)  # (B, 1, 1, d_attention): one query, one head
            prepared = self.align.prepare(keys.unsqueeze(1))  # (B, 1, S, d_attention)
            function, scope = AttentionFunction(self.align, self.distribute), AttentionScope(mask[:, None, None, :])
            weights = function.weights(query, prepared, scope)[:, 0, 0]
        return (weights.unsqueeze(1) @ states).squeeze(1), weights  # (B, 1, S) @ (B, S, d)


class HierarchicalAttentionNetwork(nn.Module):
    """Classifier from word ids to document features, which ``output`` maps to logits."""

    def __init__(self, config: HanConfig, vocab_size: int, n_labels: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, config.d_model)
        nn.init.normal_(self.embedding.weight)  # smaller vectors train more slowly, and attention learns less
        # Two levels, each with a recurrent encoder and attention pooling.
        self.words = RecurrentEncoder("gru", config.d_model, config.d_word, 1, bidirectional=True, dropout=0.0)
        self.word_attention = AttentionPooling(config.d_word, config)
        self.sentences = RecurrentEncoder("gru", config.d_word, config.d_sentence, 1, bidirectional=True, dropout=0.0)
        self.sentence_attention = AttentionPooling(config.d_sentence, config)
        self.output = Linear(config.d_sentence, n_labels)  # (B, d) to (B, L)
        init_xavier(self.output)
        self.dropout = Dropout(config.dropout)

    def hidden(self, words: Tensor, word_mask: Tensor, places: Tensor, sentence_mask: Tensor) -> Tensor:
        """Return the features (B, d) of documents.

        Args:
            words: (N, W) word ids of all sentences.
            word_mask: (N, W) bool, False at padding, which is on the right.
            places: (B, S) int64, index into the N sentences for each position of a document; arbitrary at padding.
            sentence_mask: (B, S) bool, False at padding, which is on the right.
        """
        return self.forward_with_weights(words, word_mask, places, sentence_mask)[0]

    def attention_weights(
        self, words: Tensor, word_mask: Tensor, places: Tensor, sentence_mask: Tensor
    ) -> Mapping[str, Tensor]:
        """Return the weights of both levels as (B, layers, heads, T, S), without dropout.

        "word" is (B, 1, 1, S, W), one row per sentence, and "sentence" is (B, 1, 1, 1, S). Rows sum to 1, except with
        sigmoid and local; weights of padding are exactly 0. The arguments are those of ``hidden``.
        """
        with without_dropout(self):
            _, of_words, of_sentences = self.forward_with_weights(words, word_mask, places, sentence_mask)
        # One layer and one head each.
        return {"word": of_words[:, None, None], "sentence": of_sentences[:, None, None, None]}

    def forward_with_weights(
        self, words: Tensor, word_mask: Tensor, places: Tensor, sentence_mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return features (B, d), word weights (B, S, W) and sentence weights (B, S)."""
        states, _ = self.words(self.dropout(self.embedding(words)), word_mask)  # (N, W, d)
        pooled, of_words = self.word_attention(states, word_mask)  # (N, d), (N, W)
        real = sentence_mask.unsqueeze(-1)
        vectors = self.dropout(pooled)[places].masked_fill(~real, 0.0)  # (B, S, d)
        states, _ = self.sentences(vectors, sentence_mask)  # (B, S, d)
        document, of_sentences = self.sentence_attention(states, sentence_mask)  # (B, d), (B, S)
        return self.dropout(document), of_words[places].masked_fill(~real, 0.0), of_sentences
