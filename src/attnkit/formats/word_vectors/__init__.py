"""Word vectors in the files of other systems: words and rows of numbers, mapped where the format allows it.

Knows streams and buffers, not where they come from; a ``name`` is for messages.
"""
