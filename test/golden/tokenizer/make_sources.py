#!/usr/bin/env python3
"""Writes test/golden/tokenizer/sources: directories with tokenizer files of every kind that AutoTokenizer reads, and
sources.jsonl with what transformers makes of them. The vocabularies are trained here, on wordnet_texts.txt; they differ a little from
run to run.

usage: make_sources.py    (transformers 5.24, tokenizers 0.23, sentencepiece 0.2; offline)
"""
import contextlib
import io
import json
import os
import pathlib
import shutil
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
import sentencepiece
import tokenizers
import transformers

HERE = pathlib.Path(__file__).parent
ROOT = HERE / "sources"
CORPUS = [line for line in (HERE / "wordnet_texts.txt").read_text(encoding="utf-8").splitlines() if line.strip()]
CORPUS += ["Gr\u00f6\u00dfe \u00c4pfel Stra\u00dfe caf\u00e9", "\u043f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440", "\u65e5\u672c\u8a9e \u306e \u30c6\u30b9\u30c8"] * 5

# A few rules in place of nmt_nfkc, whose charsmap has 240 KB.
RULES = [("\u2460", "1"), ("\uff71", "\u30a2"), ("\u200b", " "), ("\u00a0", " "), ("\u3000", " "), ("\t", " "),
         ("\n", " "), ("\ufb01", "fi"), ("\u00bd", "1\u20442"), ("\u0065\u0301", "\u00e9"), ("\ufdfa", "\u0635 \u0644")]

TEXTS = [
    "", " ", "a", "Hello, world!", "  Hello   world  ", "HELLO W\u00f6rld na\u00efve caf\u00e9", "the quick brown fox's tail isn't 123456",
    "\u043f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440", "\u65e5\u672c\u8a9e\u306e\u30c6\u30b9\u30c8 \u6f22\u5b57", "\ud55c\uad6d\uc5b4", "emoji \U0001f600 and \U0001f468\u200d\U0001f469\u200d\U0001f467", "tab\there\nnew line\r\nend",
    "a\u200bb\ufeffc", "\u2460\uff71\u00bd \ufb01ne", "e\u0301 \u00e9", "<s> in </s> the <mask> middle<mask>", "x<pad>y <unk> [MASK] z[SEP]",
    "\u2581already \u2581there\u2581", "$5.00+x=`y` ``quoted'' text", "<|endoftext|>after <|startoftext|>",
    "<extra_id_0> filled <extra_id_99>", "trailing   ", "\u00a0nbsp\u00a0", "a" * 120, "\u0130stanbul \u1e9e \u00df", "don't DON'T I'll we've",
    "<new>token <new> and<new>", "<other> one", "x\u3000y", "\ufdfa", "word" * 30, "1 22 333 4444", "\r", "\U000e0001tag",
] + CORPUS[:12]


def sentencepiece_model(**options):
    model = io.BytesIO()
    with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
        rules = pathlib.Path("rules.tsv")  # the model holds this path
        if options.pop("rules", False):
            lines = ("\t".join(" ".join(f"{ord(c):X}" for c in side) for side in rule) for rule in RULES)
            rules.write_text("\n".join(lines) + "\n")
            options["normalization_rule_tsv"] = str(rules)
        else:
            options["normalization_rule_name"] = "identity"
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(CORPUS), model_writer=model, num_threads=1, minloglevel=2, hard_vocab_limit=False,
            **options)
    return model.getvalue()


def byte_level(specials, suffix=""):
    """vocab.json and merges.txt of a byte-level BPE."""
    options = {"end_of_word_suffix": suffix} if suffix else {}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(**options))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=520, special_tokens=specials, show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), **options)
    tokenizer.train_from_iterator(CORPUS, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    vocab = model["vocab"]
    if suffix:
        for character in tokenizers.pre_tokenizers.ByteLevel.alphabet():
            vocab.setdefault(character + suffix, len(vocab))
    merges = "#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in model["merges"])
    return {"vocab.json": json.dumps(vocab, ensure_ascii=False), "merges.txt": merges}


def wordpiece(specials):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=400, special_tokens=specials, show_progress=False)
    tokenizer.train_from_iterator(CORPUS + [text.lower() for text in CORPUS[:200]], trainer)
    vocab = json.loads(tokenizer.to_str())["model"]["vocab"]
    return {"vocab.txt": "".join(f"{token}\n" for token in sorted(vocab, key=vocab.get))}


def tokenizer_json(vocab_txt, **stages):
    vocab = {token: index for index, token in enumerate(vocab_txt.splitlines())}
    specials = [token for token in vocab if token.startswith("[") and token.endswith("]") and len(token) > 3]
    content = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": vocab[token], "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for token in specials],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", vocab["[SEP]"]], "cls": ["[CLS]", vocab["[CLS]"]]},
        "decoder": None,
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": vocab},
    }
    content.update(stages)
    return json.dumps(content, ensure_ascii=False)


def sources():
    """name -> files; a dictionary as content is written as JSON."""
    bert = wordpiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    mpnet = wordpiece(["<s>", "<pad>", "</s>", "<unk>", "[UNK]", "<mask>"])
    size = len(bert["vocab.txt"].splitlines())
    flags = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}
    yield "bert", {**bert, "config.json": {"model_type": "bert"}}
    yield "bert_cased", {**bert, "tokenizer_config.json": {"tokenizer_class": "BertTokenizerFast", "do_lower_case": False,
                                                           "model_max_length": 64, "truncation_side": "left"}}
    yield "bert_accents", {**bert, "tokenizer_config.json": {"tokenizer_class": "DistilBertTokenizer", "strip_accents": False,
                                                             "tokenize_chinese_chars": False, "padding_side": "left"}}
    yield "bert_added", {
        **bert, "tokenizer_config.json": {"tokenizer_class": "BertTokenizer"},
        "added_tokens.json": {"<new>": size, "<other>": size + 1},
        "special_tokens_map.json": {"mask_token": {**flags, "content": "[MASK]", "lstrip": True},
                                    "additional_special_tokens": ["<other>"]}}
    yield "bert_decoder", {
        **bert, "config.json": {"model_type": "bert"}, "added_tokens.json": {"<ignored>": size},
        "tokenizer_config.json": {"added_tokens_decoder": {"0": {**flags, "content": "[PAD]"}, "999": {
            **flags, "content": "<new>", "special": False, "normalized": True, "rstrip": True}},
            "extra_special_tokens": ["<other>"]}}
    yield "mpnet", {**mpnet, "config.json": {"model_type": "mpnet"}}
    yield "mpnet_mask", {**mpnet, "tokenizer_config.json": {
        "tokenizer_class": "MPNetTokenizer", "do_lower_case": False,
        "mask_token": {"__type": "AddedToken", "content": "<mask>", "lstrip": True, "normalized": True, "rstrip": False,
                       "single_word": False}}}
    text = bert["vocab.txt"]
    yield "json_cased", {"tokenizer.json": tokenizer_json(text), "tokenizer_config.json": {
        "tokenizer_class": "BertTokenizer", "do_lower_case": False}}
    yield "json_no_post", {"tokenizer.json": tokenizer_json(text, post_processor=None), "config.json": {"model_type": "bert"}}
    first = {"type": "TemplateProcessing", "pair": [], "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                                                                  {"Sequence": {"id": "A", "type_id": 0}}],
             "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]}}}
    yield "json_only_bos", {"tokenizer.json": tokenizer_json(text, post_processor=first), "tokenizer_config.json": {
        "tokenizer_class": "PreTrainedTokenizerFast", "add_eos_token": True, "eos_token": "[SEP]", "pad_token": "<new>",
        "additional_special_tokens": ["<other>"]}}
    yield "json_only_bos_bert", {"tokenizer.json": tokenizer_json(text, post_processor=first), "tokenizer_config.json": {
        "tokenizer_class": "BertTokenizer", "add_eos_token": True}}
    yield "json_left", {"tokenizer.json": tokenizer_json(
        text, truncation={"direction": "Left", "max_length": 8, "strategy": "LongestFirst", "stride": 0},
        padding={"strategy": "BatchLongest", "direction": "Left", "pad_to_multiple_of": None, "pad_id": 0,
                 "pad_type_id": 0, "pad_token": "[PAD]"})}
    gpt2 = byte_level(["<|endoftext|>"])
    yield "gpt2", {**gpt2, "config.json": {"model_type": "gpt2"}}
    yield "gpt2_specials", {**gpt2, "tokenizer_config.json": {
        "tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "add_eos_token": True, "add_prefix_space": True,
        "pad_token": "<|endoftext|>"}}
    yield "qwen2", {**gpt2, "config.json": {"model_type": "qwen3"}, "tokenizer_config.json": {
        "tokenizer_class": "Qwen2Tokenizer", "add_eos_token": True, "padding_side": "left"}}
    yield "roberta", {**byte_level(["<s>", "<pad>", "</s>", "<unk>", "<mask>"]), "config.json": {"model_type": "roberta"}}
    yield "clip", {**byte_level(["<|startoftext|>", "<|endoftext|>"], "</w>"), "config.json": {"model_type": "clip"}}
    fairseq = sentencepiece_model(vocab_size=300, model_type="unigram", character_coverage=0.999, rules=True)
    yield "xlmr", {"sentencepiece.bpe.model": fairseq, "config.json": {"model_type": "xlm-roberta"}}
    yield "camembert", {"sentencepiece.bpe.model": fairseq, "tokenizer_config.json": {"tokenizer_class": "CamembertTokenizer"}}
    yield "t5", {"spiece.model": sentencepiece_model(vocab_size=300, model_type="unigram", character_coverage=0.999,
                                                    rules=True, pad_id=0, eos_id=1, unk_id=2, bos_id=-1),
                 "config.json": {"model_type": "t5"}}
    yield "albert", {"spiece.model": sentencepiece_model(
        vocab_size=300, model_type="unigram", pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, pad_piece="<pad>",
        control_symbols=["[CLS]", "[SEP]", "[MASK]"], rules=True, character_coverage=0.999),
        "config.json": {"model_type": "albert"}}
    llama = sentencepiece_model(vocab_size=600, model_type="bpe", byte_fallback=True, remove_extra_whitespaces=False,
                                split_digits=True, character_coverage=0.99)
    yield "llama", {"tokenizer.model": llama, "tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer"}}
    yield "llama_specials", {"tokenizer.model": llama, "tokenizer_config.json": {
        "tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": True, "legacy": True,
        "pad_token": "</s>"}}
    yield "mistral", {"tokenizer.model": llama, "config.json": {"model_type": "mistral"}, "tokenizer_config.json": {
        "tokenizer_class": "LlamaTokenizer", "add_bos_token": True}}
    yield "gemma", {"tokenizer.model": sentencepiece_model(
        vocab_size=600, model_type="bpe", byte_fallback=True, remove_extra_whitespaces=False, add_dummy_prefix=False,
        pad_id=0, eos_id=1, bos_id=2, unk_id=3, pad_piece="<pad>", eos_piece="<eos>", bos_piece="<bos>",
        user_defined_symbols=["<mask>", "the"], allow_whitespace_only_pieces=True, character_coverage=0.99),
        "config.json": {"model_type": "gemma"}, "tokenizer_config.json": {"add_bos_token": True, "add_eos_token": True}}
    yield "unigram", {"tokenizer.model": sentencepiece_model(
        vocab_size=300, model_type="unigram", character_coverage=0.999, rules=True, user_defined_symbols=["an", "<new>"])}


def write(directory, files):
    directory.mkdir(parents=True)
    for name, content in files.items():
        if isinstance(content, dict):
            content = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        data = content if isinstance(content, bytes) else content.encode("utf-8")
        (directory / name).write_bytes(data)


def records(name, directory):
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    longest = tokenizer.model_max_length
    yield {"directory": name, "class": type(tokenizer).__name__, "padding_side": tokenizer.padding_side,
           "truncation_side": tokenizer.truncation_side, "model_max_length": longest if longest < 1e9 else None}
    for text in TEXTS:
        encoding = tokenizer(text, return_offsets_mapping=True)
        cut = tokenizer(text, truncation=True, max_length=7)["input_ids"]
        yield {"directory": name, "text": text, "ids": encoding["input_ids"], "tokens": encoding.tokens(),
               "offsets": encoding["offset_mapping"], "cut": cut}


def main():
    transformers.logging.set_verbosity_error()
    shutil.rmtree(ROOT, ignore_errors=True)
    with open(HERE / "sources.jsonl", "w", encoding="ascii") as out:
        for name, files in sources():
            write(ROOT / name, files)
            for record in records(name, ROOT / name):
                out.write(json.dumps(record) + "\n")


main()
