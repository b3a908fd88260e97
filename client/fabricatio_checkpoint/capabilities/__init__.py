"""What agent roles can be given."""
