"""Tells the next words by the model. With `--save` it captures, and keeps that in a file; with `--load` it captures nothing."""

from __future__ import annotations

import argparse

import torch
from textkit.model import Model
from train import LENGTH, TEXTS, WIDTH, WORDS, tokenizer

import fineline


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--save", metavar="FILE")
    choice.add_argument("--load", metavar="FILE")
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Model(WORDS, WIDTH).eval()
    answer = fineline.load(args.load, model) if args.load else fineline.compile(model, backend="eager")
    tokens = tokenizer.encode(TEXTS, LENGTH)
    with torch.inference_mode():
        # One request, and more at once: a second capture, with a number that varies.
        words = [answer(tokens[:count])[:, -1].argmax(dim=-1).tolist() for count in (1, 2, 4)]
    captures = [event for event in fineline.report(answer).events if event.kind == "graph"]
    print(f"next words {words[-1]}, captured {len(captures)} graphs")
    if args.save:
        print(f"saved {fineline.save(answer, args.save)} programs")


if __name__ == "__main__":
    main()
