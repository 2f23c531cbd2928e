"""The hierarchical attention network for documents (Yang et al. 2016, "Hierarchical Attention Networks for Document
Classification"): words are weighed within each sentence, sentences within the document.

Sentences of all documents lie in one batch, so that none is padded to the number of sentences of another document.

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
    """The mean of states weighed by how well they fit a learned context vector c: softmax(tanh(W h + b)·c).

    Yang et al. 2016, equations 5 to 7 for words, 8 to 10 for sentences. Other functions take c as their query and
    tanh(W h + b) as their keys.
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
        """Return the pooled states (B, d) and the weights (B, S), for states (B, S, d) and a mask (B, S) of real ones.

        Weights are exactly 0 where the mask is False; a row without any real state gives zeros.
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
    """Ids of words in, features of documents out; ``output`` turns them into logits of labels."""

    def __init__(self, config: HanConfig, vocab_size: int, n_labels: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, config.d_model)
        nn.init.normal_(self.embedding.weight)  # smaller vectors learn later, and leave less for the attention to find
        # Two levels of the same kind: recurrent encoder, then attention pooling.
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
            words: (N, W) ids of the words of every sentence.
            word_mask: (N, W) bool, True at real words, padding on the right.
            places: (B, S) int64, which of the N sentences stands at each place of a document; any where none does.
            sentence_mask: (B, S) bool, True at real sentences, padding on the right.
        """
        return self.forward_with_weights(words, word_mask, places, sentence_mask)[0]

    def attention_weights(
        self, words: Tensor, word_mask: Tensor, places: Tensor, sentence_mask: Tensor
    ) -> Mapping[str, Tensor]:
        """Return the weights of both levels for the inputs of ``hidden``, in the form (B, layers, heads, T, S).

        "word" is (B, 1, 1, S, W): a row for each sentence, over its words; "sentence" is (B, 1, 1, 1, S). Rows sum to 1
        over real words and sentences, but for sigmoid and local, and are exactly 0 elsewhere. Dropout is off meanwhile.
        """
        with without_dropout(self):
            _, of_words, of_sentences = self.forward_with_weights(words, word_mask, places, sentence_mask)
        # One layer and one head each.
        return {"word": of_words[:, None, None], "sentence": of_sentences[:, None, None, None]}

    def forward_with_weights(
        self, words: Tensor, word_mask: Tensor, places: Tensor, sentence_mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the features (B, d) of ``hidden`` with the weights of words (B, S, W) and of sentences (B, S)."""
        states, _ = self.words(self.dropout(self.embedding(words)), word_mask)  # (N, W, d)
        pooled, of_words = self.word_attention(states, word_mask)  # (N, d), (N, W)
        real = sentence_mask.unsqueeze(-1)
        vectors = self.dropout(pooled)[places].masked_fill(~real, 0.0)  # (B, S, d)
        states, _ = self.sentences(vectors, sentence_mask)  # (B, S, d)
        document, of_sentences = self.sentence_attention(states, sentence_mask)  # (B, d), (B, S)
        return self.dropout(document), of_words[places].masked_fill(~real, 0.0), of_sentences
