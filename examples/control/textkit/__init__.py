"""A small package, as projects have them: a tokenizer, an operator library, a model, metrics."""
