"""Writes correlations_golden.json, ../data/scored_pairs.jsonl and ../similarity_tiny.json.

correlations_golden.json: scipy's pearsonr and spearmanr of small lists with ties, constants and extremes (nan: null).
scored_pairs.jsonl: pairs of ../data/sentences.txt with scores that repeat; some sentences come more than once.
similarity_tiny.json: EmbeddingSimilarityEvaluator of sentence-transformers 6.2 on those pairs: tiny_bert as it is, and
without Normalize under all four similarities. Refuses to write when float32 rounding could swap two pairs.

Run in this directory.
"""

import json
import math
import pathlib
import sys
import warnings

sys.path.insert(0, "..")
import peers  # noqa: E402
import numpy as np  # noqa: E402
import scipy  # noqa: E402
from scipy.stats import pearsonr, spearmanr  # noqa: E402
from sentence_transformers import SentenceTransformer  # noqa: E402
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator  # noqa: E402
from sentence_transformers.util import pairwise_cos_sim, pairwise_dot_score, pairwise_euclidean_sim  # noqa: E402
from sentence_transformers.util import pairwise_manhattan_sim  # noqa: E402

MIN_GAP = 1e-6  # relative to the spread of the scores
SIMILARITIES = {"cosine": pairwise_cos_sim, "dot": pairwise_dot_score, "euclidean": pairwise_euclidean_sim,
                "manhattan": pairwise_manhattan_sim}


def plain(value):
    return None if math.isnan(value) else float(value)


def correlations():
    rng = np.random.default_rng(3)
    cases = [([1, 2], [3, 4]), ([1, 2], [4, 3]), ([1, 2, 3], [5, 5, 5]), ([2, 2, 2], [5, 5, 5]), ([0, 0, 1], [1, 2, 2]),
             ([1e300, 2.0, 3.0], [1, 2, 3]), ([1e-300, 2e-300, 5e-300], [1, 2, 3]), ([1e9, 1e9 + 1, 1e9 + 3], [2, 1, 7])]
    for size in (3, 10, 57):
        cases.append((rng.normal(size=size).tolist(), rng.normal(size=size).tolist()))
        cases.append((rng.integers(0, 4, size).tolist(), rng.normal(size=size).tolist()))
        cases.append((rng.integers(0, 4, size).tolist(), rng.integers(0, 3, size).tolist()))
    found = []
    for x, y in cases:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append({"x": x, "y": y, "pearson": plain(pearsonr(x, y)[0]), "spearman": plain(spearmanr(x, y)[0])})
    return found


def make_pairs():
    sentences = pathlib.Path("../data/sentences.txt").read_text(encoding="utf-8").split("\n")
    pairs = [{"a": sentences[i % 50], "b": sentences[(7 * i + 3) % 190], "score": i * 5 % 6 / 2} for i in range(70)]
    with open("../data/scored_pairs.jsonl", "w", encoding="utf-8") as out:
        for pair in pairs:
            out.write(json.dumps(pair, ensure_ascii=False) + "\n")
    return pairs


def evaluate(model, pairs, names):
    model.eval()
    a, b, gold = ([pair[key] for pair in pairs] for key in ("a", "b", "score"))
    gaps = []
    for name in names:
        scores = SIMILARITIES[name](model.encode(a), model.encode(b)).numpy()
        distinct = np.unique(scores)
        gaps.append(float(np.diff(distinct).min() / np.ptp(distinct)))
    assert min(gaps) > MIN_GAP, gaps
    evaluator = EmbeddingSimilarityEvaluator(a, b, gold, similarity_fn_names=names)
    metrics = {name: float(value) for name, value in evaluator(model).items()}
    return {"smallest_gap": min(gaps), "primary": evaluator.primary_metric, "csv": evaluator.csv_headers, "metrics": metrics}


def main():
    peers.write_json("correlations_golden.json", {"scipy": scipy.__version__, "cases": correlations()})
    pairs = make_pairs()
    tiny = peers.load_model("../tiny_bert")
    bare = SentenceTransformer(modules=list(tiny.children())[:2], device="cpu")
    peers.write_json("../similarity_tiny.json", {
        "default": evaluate(tiny, pairs, ["cosine"]),
        "without_normalize": evaluate(bare, pairs, list(SIMILARITIES)),
    })


if __name__ == "__main__":
    main()
