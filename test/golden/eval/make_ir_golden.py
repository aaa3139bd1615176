"""Writes ir_golden.json: metrics of the real InformationRetrievalEvaluator on small random cases with many ties.

Made with sentence-transformers 6.2.0, torch 2.15.0, numpy seed 7. Run in this directory. Scores are small integers, so
they are exact and ties are frequent; test/eval/ir_metrics_test.cpp ranks them itself and compares every metric. The
graded ndcg@10 of a case (linear gains, as trec_eval) is computed here in plain Python.
"""

import json
import math

import numpy as np
import torch
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

rng = np.random.default_rng(7)


class ScoreModel:
    """Embeds query i as the i-th row of the score matrix and document j as the j-th unit vector."""

    similarity_fn_name = "dot"
    model_card_data = None

    def __init__(self, scores):
        self.scores = torch.tensor(scores, dtype=torch.float32)

    def encode_query(self, texts, **_):
        return self.scores[[int(text) for text in texts]]

    def encode_document(self, texts, **_):
        return torch.eye(self.scores.shape[1])[[int(text) for text in texts]]

    similarity = staticmethod(lambda a, b: a @ b.T)


class Evaluator(InformationRetrievalEvaluator):
    def store_metrics_in_model_card_data(self, *args, **kwargs):
        """There is no model card here."""


def graded_ndcg(ranking, grades, k=10):
    dcg = sum(grades.get(doc, 0) / math.log2(i + 2) for i, doc in enumerate(ranking[:k]))
    ideal = sorted(grades.values(), reverse=True)[:k]
    return dcg / sum(grade / math.log2(i + 2) for i, grade in enumerate(ideal))


def make_case(name, query_count, corpus_ids, levels, relevant_range, chunk):
    scores = rng.integers(0, levels, size=(query_count, len(corpus_ids))).tolist()
    qrels = {}
    for q in range(query_count):
        count = int(rng.integers(relevant_range[0], relevant_range[1] + 1))  # 0: the query is dropped
        docs = rng.choice(len(corpus_ids), size=min(count, len(corpus_ids)), replace=False)
        qrels[f"q{q}"] = {corpus_ids[int(d)]: int(rng.integers(1, 4)) for d in docs}
        if count and q % 4 == 1:
            qrels[f"q{q}"]["not-in-corpus"] = 2
    evaluator = Evaluator(
        {f"q{q}": str(q) for q in range(query_count)},
        {doc: str(i) for i, doc in enumerate(corpus_ids)},
        {query: set(docs) for query, docs in qrels.items()},
        corpus_chunk_size=chunk,
        score_functions={"dot": lambda a, b: a @ b.T},
    )
    metrics = {key.removeprefix("dot_"): float(value) for key, value in evaluator(ScoreModel(scores)).items()}
    graded = []
    for q in range(query_count):
        if qrels[f"q{q}"]:
            order = sorted(range(len(corpus_ids)), key=lambda i: (-scores[q][i], corpus_ids[i]))
            ranking = [corpus_ids[i] for i in order]
            graded.append(graded_ndcg(ranking, qrels[f"q{q}"]))
    return {"name": name, "corpus_ids": corpus_ids, "scores": scores, "qrels": qrels, "metrics": metrics,
            "graded_ndcg@10": sum(graded) / len(graded)}


many = [str(i) for i in rng.permutation(150)]
cases = [
    make_case("corpus smaller than every k", 9, ["b", "a", "\u00e9", "10", "9", "Z", "\U0001f600"], 3, (0, 4), 50000),
    make_case("deep ranking, ties at the cut", 12, many, 4, (0, 20), 64),
    make_case("more relevant documents than the deepest cut", 3, many, 1000, (95, 130), 50000),
    make_case("everything tied", 4, many[:40], 1, (0, 6), 7),
]
with open("ir_golden.json", "w", encoding="ascii") as out:
    json.dump({"cases": cases}, out, separators=(",", ":"))
    out.write("\n")
