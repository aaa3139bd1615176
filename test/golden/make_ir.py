#!/usr/bin/env python3
"""Writes ir_minilm.json and ir_tiny.json: InformationRetrievalEvaluator on data/beir, every metric.

Document text: title, one blank, text. Relevant: score > 0; queries without a relevant document are left out, as the peer
does. Refuses to write when float32 rounding could swap a relevant document with another one.

usage: test/golden/make_ir.py [--minilm .deps/models/all-MiniLM-L6-v2] [--out test/golden]
"""
import argparse
import csv
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import peers  # noqa: E402
from sentence_transformers import SentenceTransformer  # noqa: E402
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator  # noqa: E402
from sentence_transformers.util import cos_sim, dot_score, euclidean_sim, manhattan_sim  # noqa: E402

SIMILARITIES = {"cosine": cos_sim, "dot": dot_score, "euclidean": euclidean_sim, "manhattan": manhattan_sim}
MIN_GAP = 1e-6  # relative to the largest score of the query
MAX_RANK = 100  # no metric looks further down


def read_beir(directory):
    queries = {row["_id"]: row["text"] for row in peers.read_rows(directory / "queries.jsonl")}
    corpus = {row["_id"]: (row["title"] + " " + row["text"]).strip() for row in peers.read_rows(directory / "corpus.jsonl")}
    relevant = {}
    with open(directory / "qrels" / "test.tsv", encoding="utf-8") as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            if float(row["score"]) > 0:
                relevant.setdefault(row["query-id"], set()).add(row["corpus-id"])
    return queries, corpus, relevant


def smallest_gap(model, beir, similarity):
    queries, corpus, relevant = beir
    kept = [q for q in queries if q in relevant]
    ids = list(corpus)
    encode = dict(convert_to_tensor=True, show_progress_bar=False)
    scores = similarity(model.encode([queries[q] for q in kept], **encode), model.encode(list(corpus.values()), **encode))
    gaps = []
    for q, row in zip(kept, scores):
        is_relevant = [d in relevant[q] for d in ids]
        for i, flag in enumerate(is_relevant):
            if flag and int((row > row[i]).sum()) <= MAX_RANK:
                others = [abs(float(row[j] - row[i])) for j in range(len(ids)) if not is_relevant[j]]
                gaps.append(min(others) / float(row.abs().max()))
    return min(gaps)


def evaluate(model, beir, names):
    model.eval()
    queries, corpus, relevant = beir
    functions = {name: SIMILARITIES[name] for name in names}
    gap = min(smallest_gap(model, beir, f) for f in functions.values())
    assert gap > MIN_GAP, gap
    evaluator = InformationRetrievalEvaluator(queries, corpus, relevant, batch_size=32, score_functions=functions)
    metrics = {name: float(value) for name, value in evaluator(model).items()}
    return {"queries": len(evaluator.queries), "documents": len(corpus), "smallest_gap": gap, "metrics": metrics}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minilm", default=".deps/models/all-MiniLM-L6-v2")
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    arguments = parser.parse_args()
    beir = read_beir(HERE / "data" / "beir")
    tiny = peers.load_model(HERE / "tiny_bert")
    plain = SentenceTransformer(modules=list(tiny.children())[:2], device="cpu")
    peers.write_json(arguments.out / "ir_tiny.json", {
        "default": evaluate(tiny, beir, ["cosine"]),
        "without_normalize": evaluate(plain, beir, list(SIMILARITIES)),
    })
    peers.write_json(arguments.out / "ir_minilm.json", {"default": evaluate(peers.load_model(arguments.minilm), beir, ["cosine"])})


if __name__ == "__main__":
    main()
