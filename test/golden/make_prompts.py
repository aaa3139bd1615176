#!/usr/bin/env python3
"""Writes prompts.json and prompts.safetensors: what sentence-transformers does with prompts.

`pooled/PROMPT_LENGTH/MODE`: the texts of poolings.safetensors with their first tokens left out (the last text may have
no token left). Padding on either side gives the same, but for the first token of a text without tokens.
`MODEL/PROMPT/MODE`: texts behind a prompt with include_prompt false and without Normalize; `prompt_lengths`: how many
tokens the package takes a prompt for. Padding on either side gives the same for tiny_llama (tiny_bert's positions count
the padding).
`losses`: MultipleNegativesRankingLoss of 24 pairs with a prompt for each role, include_prompt true and false.
`retrieval`: InformationRetrievalEvaluator with the model's prompts and with the evaluator's own.

usage: test/golden/make_prompts.py [--out test/golden]
"""
import argparse
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import peers  # noqa: E402
import make_ir  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from sentence_transformers import SentenceTransformer  # noqa: E402
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator  # noqa: E402
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss  # noqa: E402
from sentence_transformers.sentence_transformer.modules import Pooling  # noqa: E402

MODELS, MAX_LENGTH, ROWS = ("tiny_bert", "tiny_llama"), 20, 24
TEXTS = ["a small flower", "", "of", "the state of being in the north of a country: 42 degrees, or more, or even fewer"]
PROMPTS = {  # a blank at the end joins the word behind it in tiny_llama's tokens
    "short": "find: ",
    "glued": "find",
    "end": "a title<|endoftext|>[SEP]",
    "long": "some words that fill all the tokens a text may have in either of the two models, and then more",
}
TRAINED = {"anchor": "the meaning of ", "positive": "words for it: "}


def pool(texts, mode, prompt_length, side):
    longest, width = max(map(len, texts)), texts[0].shape[1]
    hidden, mask = torch.zeros(len(texts), longest, width), torch.zeros(len(texts), longest, dtype=torch.int64)
    for i, text in enumerate(texts):
        at = slice(longest - len(text), longest) if side == "left" else slice(0, len(text))
        hidden[i, at], mask[i, at] = text, 1
    features = {"token_embeddings": hidden, "attention_mask": mask, "prompt_length": prompt_length}
    return Pooling(width, pooling_mode=mode, include_prompt=False)(features)["sentence_embedding"]


def pooled(tensors):
    poolings = load_file(HERE / "poolings.safetensors")
    texts = [poolings[f"text_{i}"] for i in range(3)]
    for prompt_length in (1, 3, 5):
        for mode in Pooling.POOLING_MODES:
            right = pool(texts, mode, prompt_length, "right")
            keeps = [i for i, text in enumerate(texts) if mode != "cls" or len(text) > prompt_length]
            assert torch.allclose(pool(texts, mode, prompt_length, "left")[keeps], right[keeps], atol=1e-6)
            tensors[f"pooled/{prompt_length}/{mode}"] = right


def model_with(name, mode, max_length=MAX_LENGTH):
    model = peers.load_model(HERE / name).eval()
    transformer = list(model.children())[0]
    pooling = Pooling(32, pooling_mode=mode, include_prompt=False)
    result = SentenceTransformer(modules=[transformer, pooling], device="cpu")
    result.max_seq_length = max_length
    return result


def embedded(tensors):
    lengths = {name: {} for name in MODELS}
    for name in MODELS:
        for mode in Pooling.POOLING_MODES:
            model = model_with(name, mode)
            for prompt_name, prompt in PROMPTS.items():
                vectors = {}
                for side in ("left", "right"):
                    model.tokenizer.padding_side = side
                    vectors[side] = model.encode(TEXTS, prompt=prompt, convert_to_tensor=True, show_progress_bar=False)
                if name == "tiny_llama":
                    assert torch.allclose(vectors["left"], vectors["right"], atol=1e-5), (mode, prompt_name)
                tensors[f"{name}/{prompt_name}/{mode}"] = vectors["right"].contiguous()
                lengths[name][prompt_name] = model[0]._get_prompt_length(prompt)
    return lengths


def losses():
    rows = peers.read_rows(HERE / "data" / "pairs.jsonl", ROWS)
    result = {}
    for name in MODELS:
        for include_prompt in (True, False):
            model = peers.load_model(HERE / name).eval()
            model.set_pooling_include_prompt(include_prompt)
            features = [model.preprocess([row[role] for row in rows], prompt=prompt)
                        for role, prompt in TRAINED.items()]
            with torch.no_grad():
                loss = MultipleNegativesRankingLoss(model)(features, None)
            result.setdefault(name, {})["include" if include_prompt else "exclude"] = float(loss)
    return result


def retrieval():
    queries, corpus, relevant = make_ir.read_beir(HERE / "data" / "beir")
    result = {}
    for name in MODELS:
        cases = {
            "own": ({"query": "find: ", "document": "some state: "}, {}),
            "passage": ({"query": "find: ", "passage": "some state: "}, {}),
            "default": ({"other": "small: "}, {"default": True}),
            "names": ({"other": "small: ", "query": "find: "},
                      {"query_prompt_name": "other", "corpus_prompt_name": "query"}),
            "texts": ({"query": "find: "}, {"query_prompt": "", "corpus_prompt": "small: "}),
        }
        for case, (prompts, options) in cases.items():
            for include_prompt in (True, False):
                model = SentenceTransformer(str(HERE / name), device="cpu", prompts=prompts,
                                            default_prompt_name="other" if options.get("default") else None)
                model.set_pooling_include_prompt(include_prompt)
                evaluator = InformationRetrievalEvaluator(queries, corpus, relevant, batch_size=32, **{
                    key: value for key, value in options.items() if key != "default"})
                metrics = evaluator(model)
                result.setdefault(name, {}).setdefault(case, {})["include" if include_prompt else "exclude"] = {
                    key: float(metrics[key]) for key in ("cosine_ndcg@10", "cosine_mrr@10", "cosine_map@100")}
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    arguments = parser.parse_args()
    tensors = {}
    pooled(tensors)
    lengths = embedded(tensors)
    peers.write_json(arguments.out / "prompts.json", {
        "texts": TEXTS, "max_length": MAX_LENGTH, "prompts": PROMPTS, "prompt_lengths": lengths, "rows": ROWS,
        "trained": TRAINED, "losses": losses(), "retrieval": retrieval()})
    path = arguments.out / "prompts.safetensors"
    save_file(tensors, path)
    path.chmod(0o644)


if __name__ == "__main__":
    main()
