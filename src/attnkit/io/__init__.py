"""All writes (``atomic``) and all reads of files that a stranger may have made (``safe_read``)."""
