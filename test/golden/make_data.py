#!/usr/bin/env python3
"""Writes the text under test/golden/data from Debian's wordnet-base (WordNet 3.0). Python standard library only.

usage: test/golden/make_data.py [--wordnet /usr/share/wordnet] [--out test/golden/data]
"""
import argparse
import csv
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))
from prepare_wordnet import as_json, read_synsets, unique_pairs, write_lines  # noqa: E402

N_PAIRS = 640
N_TRIPLETS = 64
N_SENTENCES = 200
N_QUERIES = 60
N_UNJUDGED = 2         # queries without a relevant document: evaluators leave them out
N_WITH_HYPONYMS = 25   # queries with several relevant documents
N_DOCUMENTS = 300


def lemmas_of(synset):
    return ", ".join(synset.lemmas)


def write_pairs(out, synsets):
    rows = [{"anchor": s.definition, "positive": lemmas_of(s)} for s in synsets[:N_PAIRS]]
    write_lines(os.path.join(out, "pairs.jsonl"), map(as_json, rows))
    # Hard negatives are the lemmas of synsets that no other column uses.
    spare = synsets[N_PAIRS:N_PAIRS + 2 * N_TRIPLETS]
    triplets = [{**row, "negative_1": lemmas_of(spare[2 * i]), "negative_2": lemmas_of(spare[2 * i + 1])}
                for i, row in enumerate(rows[:N_TRIPLETS])]
    write_lines(os.path.join(out, "triplets.jsonl"), map(as_json, triplets))


def write_scored(out, synsets):
    """Definitions beside their own lemmas, those of a neighbour, or of a synset far off, with a score of few levels, so
    that many are equal."""
    with open(os.path.join(out, "scored.csv"), "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow(["definition", "lemmas", "score"])
        for i in range(N_PAIRS):
            distance, score = ((0, 1.0), (1, 0.25 + 0.25 * (i % 2)), (N_PAIRS + 2 * N_TRIPLETS, 0.0))[i * i % 7 % 3]
            writer.writerow([synsets[i].definition, lemmas_of(synsets[i + distance]), score])


def write_sentences(out, synsets):
    """Glosses from one word to far beyond any maximum length, in a mixed order."""
    by_length = sorted(synsets[1000:6000], key=lambda s: (len(s.gloss), s.id))
    shortest, longest = by_length[:8], by_length[-12:]
    rest = [s.gloss for s in synsets[6000:6000 + N_SENTENCES - 24]]
    beyond = [" ".join(s.gloss for s in synsets[7000 + 30 * i:7030 + 30 * i]) for i in range(4)]
    extremes = [s.gloss for s in shortest + longest] + beyond
    step = len(rest) // len(extremes)
    sentences = []
    for i, extreme in enumerate(extremes):
        sentences += rest[i * step:(i + 1) * step] + [extreme]
    sentences += rest[len(extremes) * step:]
    assert len(sentences) == N_SENTENCES and len(set(sentences)) == N_SENTENCES
    write_lines(os.path.join(out, "sentences.txt"), sentences)


def document(index, synset):
    """Every tenth document with several lemmas keeps the first as its title."""
    title, rest = synset.lemmas[0], ", ".join(synset.lemmas[1:])
    if index % 10 == 0 and rest:
        return {"_id": synset.id, "title": title, "text": rest}
    return {"_id": synset.id, "title": "", "text": lemmas_of(synset)}


def write_beir(out, all_synsets, synsets):
    usable = {s.id: s for s in synsets}
    children = {s.id: [usable[h] for h in s.hyponyms if h in usable] for s in all_synsets}
    broad = [s for s in synsets if 2 <= len(children[s.id]) <= 6][:N_WITH_HYPONYMS]
    taken = {s.id for s in broad} | {c.id for s in broad for c in children[s.id]}
    plain = [s for s in synsets if s.id not in taken][:N_QUERIES - len(broad)]
    documents = broad + [c for s in broad for c in children[s.id]] + plain
    taken |= {s.id for s in plain}
    fillers = (s for s in synsets[20000:] if s.id not in taken)
    documents = list({s.id: s for s in documents}.values())
    documents += [next(fillers) for _ in range(N_DOCUMENTS - len(documents))]
    queries = sorted(broad + plain, key=lambda s: s.id[::-1])
    documents.sort(key=lambda s: s.id[::-1])

    qrels = []
    for i, s in enumerate(queries[:-N_UNJUDGED]):
        qrels += [f"q{s.id}\t{s.id}\t2"] + [f"q{s.id}\t{c.id}\t1" for c in children[s.id] if s in broad]
        if i % 7 == 0:  # judged, not relevant
            qrels.append(f"q{s.id}\t{next(d for d in documents[i * 3:] if d not in children[s.id] and d != s).id}\t0")
    qrels.append(f"q{queries[-1].id}\t{documents[0].id}\t0")

    beir = os.path.join(out, "beir")
    os.makedirs(os.path.join(beir, "qrels"), exist_ok=True)
    write_lines(os.path.join(beir, "queries.jsonl"),
                (as_json({"_id": "q" + s.id, "text": s.definition}) for s in queries))
    write_lines(os.path.join(beir, "corpus.jsonl"), (as_json(document(i, s)) for i, s in enumerate(documents)))
    write_lines(os.path.join(beir, "qrels", "test.tsv"), ["query-id\tcorpus-id\tscore", *qrels])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wordnet", default="/usr/share/wordnet")
    parser.add_argument("--out", default=os.path.join(HERE, "data"))
    arguments = parser.parse_args()
    os.makedirs(arguments.out, exist_ok=True)
    all_synsets = read_synsets(arguments.wordnet)
    synsets = unique_pairs(all_synsets, "stft")
    write_pairs(arguments.out, synsets)
    write_scored(arguments.out, synsets)
    write_sentences(arguments.out, synsets)
    write_beir(arguments.out, all_synsets, synsets[30000:])


if __name__ == "__main__":
    main()
