"""One search for every model: greedy, beam, sampling and their rules."""
