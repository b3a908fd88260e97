"""The daemon that owns shadow repositories and is the only process that touches them."""
