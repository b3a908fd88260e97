"""The ``ckpt`` command line. What the hot commands load is kept next to nothing."""
