"""``python -m ckptd doctor``: looks for what is wrong around a daemon, and puts it right. Starts no daemon."""
