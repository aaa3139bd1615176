#!/usr/bin/env python3
"""Turns Debian's WordNet (package wordnet-base) into training pairs and a retrieval task in BEIR layout.

A row is a synset: its definition is the anchor or query, its lemmas, joined by ", ", are the positive or document.
Synsets are split between train, dev and test by a hash of their id, so the same files come out on every machine:

  train.jsonl                               {"anchor": definition, "positive": lemmas}
  corpus.jsonl                              {"_id": synset, "title": "", "text": lemmas}
  queries.dev.jsonl, queries.test.jsonl     {"_id": "q" + synset, "text": definition}
  qrels.dev.tsv, qrels.test.tsv             query-id, corpus-id, score

The corpus holds the answers of dev and test and, as distractors, lemmas of further synsets. No synset of the corpus is
a training row; a definition or a lemma string that WordNet repeats is used once.

Needs nothing but the Python standard library.
"""
import argparse
import hashlib
import json
import os
import re
import sys
from typing import NamedTuple

PARTS_OF_SPEECH = (("noun", "n"), ("verb", "v"), ("adj", "a"), ("adv", "r"))
MIN_DEFINITION_WORDS = 3


class Synset(NamedTuple):
    id: str           # part of speech and offset: n00001740
    definition: str   # the gloss without its usage examples
    gloss: str        # the whole gloss
    lemmas: tuple     # in WordNet's order, "_" replaced by blanks
    hyponyms: tuple   # ids of the synsets directly below this one


def parse_synset(line, letter):
    """One line of a data.* file (the format is described in wndb(5WN))."""
    head, _, gloss = line.partition(" | ")
    fields = head.split()
    n_words = int(fields[3], 16)
    lemmas = []
    for i in range(n_words):
        lemma = re.sub(r"\((a|p|ip)\)$", "", fields[4 + 2 * i]).replace("_", " ")
        if lemma not in lemmas:
            lemmas.append(lemma)
    pointers = fields[4 + 2 * n_words:]
    hyponyms = []
    for i in range(int(pointers[0])):
        symbol, offset, pos, _ = pointers[1 + 4 * i:5 + 4 * i]
        if symbol == "~":
            hyponyms.append(("a" if pos == "s" else pos) + offset)
    gloss = " ".join(gloss.split())
    definition = re.split(r';\s*"', gloss)[0].strip().rstrip(";").strip()
    return Synset(letter + fields[0], definition, gloss, tuple(lemmas), tuple(hyponyms))


def read_synsets(dict_dir):
    """All synsets in file order. Lines that begin with two blanks are WordNet's licence."""
    synsets = []
    for name, letter in PARTS_OF_SPEECH:
        with open(os.path.join(dict_dir, "data." + name), encoding="utf-8") as lines:
            synsets.extend(parse_synset(line, letter) for line in lines if not line.startswith("  "))
    return synsets


def unique_pairs(synsets, seed):
    """Synsets with a definition of some length, in the order of a hash of their id, each definition and each lemma
    string once: a repeated one would have several right answers."""
    candidates = [s for s in synsets if len(s.definition.split()) >= MIN_DEFINITION_WORDS]
    candidates.sort(key=lambda s: hashlib.sha256(f"{seed}:{s.id}".encode()).digest())
    seen_definitions, seen_lemmas, pairs = set(), set(), []
    for s in candidates:
        definition, lemmas = s.definition.lower(), ", ".join(s.lemmas).lower()
        if definition in seen_definitions or lemmas in seen_lemmas:
            continue
        seen_definitions.add(definition)
        seen_lemmas.add(lemmas)
        pairs.append(s)
    return pairs


def write_lines(path, lines):
    with open(path + ".tmp", "w", encoding="utf-8", newline="\n") as out:
        out.writelines(line + "\n" for line in lines)
    os.replace(path + ".tmp", path)


def as_json(row):
    return json.dumps(row, ensure_ascii=False)


def write_split(out_dir, split, synsets):
    write_lines(os.path.join(out_dir, f"queries.{split}.jsonl"),
                (as_json({"_id": "q" + s.id, "text": s.definition}) for s in synsets))
    write_lines(os.path.join(out_dir, f"qrels.{split}.tsv"),
                ["query-id\tcorpus-id\tscore", *(f"q{s.id}\t{s.id}\t1" for s in synsets)])


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description="WordNet to training pairs and a BEIR retrieval task.")
    parser.add_argument("--wordnet", default="/usr/share/wordnet", help="directory of data.noun (default: %(default)s)")
    parser.add_argument("--out", default="data/wordnet", help="output directory (default: %(default)s)")
    parser.add_argument("--train", type=int, default=8192, help="training rows (default: %(default)s)")
    parser.add_argument("--dev", type=int, default=500, help="dev queries (default: %(default)s)")
    parser.add_argument("--test", type=int, default=500, help="test queries (default: %(default)s)")
    parser.add_argument("--corpus", type=int, default=5000, help="documents, answers included (default: %(default)s)")
    parser.add_argument("--seed", default="42", help="of the order of synsets (default: %(default)s)")
    arguments = parser.parse_args(argv)
    if min(arguments.train, arguments.dev, arguments.test) < 1:
        parser.error("--train, --dev and --test must be at least 1")
    if arguments.corpus < arguments.dev + arguments.test:
        parser.error(f"--corpus {arguments.corpus} cannot hold the {arguments.dev + arguments.test} answers of dev and test")
    if not os.path.isfile(os.path.join(arguments.wordnet, "data.noun")):
        parser.error(f"no data.noun in {arguments.wordnet}: install Debian's wordnet-base, or name WordNet's dict directory")
    return parser, arguments


def main(argv=None):
    parser, arguments = parse_arguments(argv)
    pairs = unique_pairs(read_synsets(arguments.wordnet), arguments.seed)
    n_answers = arguments.test + arguments.dev
    n_distractors = arguments.corpus - n_answers
    if n_answers + n_distractors + arguments.train > len(pairs):
        parser.error(f"WordNet has {len(pairs)} usable synsets, {arguments.corpus + arguments.train} were asked for")
    test, dev = pairs[:arguments.test], pairs[arguments.test:n_answers]
    train = pairs[n_answers:n_answers + arguments.train]
    # From the far end, so that the size of the corpus does not move the training rows.
    distractors = pairs[len(pairs) - n_distractors:]
    corpus = sorted(test + dev + distractors, key=lambda s: s.id)

    os.makedirs(arguments.out, exist_ok=True)
    write_lines(os.path.join(arguments.out, "train.jsonl"),
                (as_json({"anchor": s.definition, "positive": ", ".join(s.lemmas)}) for s in train))
    write_lines(os.path.join(arguments.out, "corpus.jsonl"),
                (as_json({"_id": s.id, "title": "", "text": ", ".join(s.lemmas)}) for s in corpus))
    write_split(arguments.out, "dev", dev)
    write_split(arguments.out, "test", test)
    print(f"{arguments.out}: {len(train)} training pairs, {len(dev)} dev and {len(test)} test queries, "
          f"{len(corpus)} documents", file=sys.stderr)


if __name__ == "__main__":
    main()
