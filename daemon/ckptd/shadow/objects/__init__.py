"""Git objects, packs and refs of a store, and how they become durable."""
