"""File access: all writes (``atomic``), reads of untrusted files (``safe_read``)."""
