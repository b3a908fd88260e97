"""Ignore rules, as git has them."""
