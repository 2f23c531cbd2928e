"""Runtime environment: devices, precision, threads, ranks and stop signals."""
