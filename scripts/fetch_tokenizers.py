#!/usr/bin/env python3
"""Makes model directories with the tokenizers of public models, for tests that compare with the Python package.

    python scripts/fetch_tokenizers.py DIRECTORY [--sdist FILE] [--only NAME] [--check]

Downloads the pinned source package llama-cpp-python with pip (or takes FILE), which carries the vocabularies of some model
families as GGUF files and, for most of them, texts with the ids that the original tokenizers gave. Writes
DIRECTORY/NAME/tokenizer.json and, where there are such texts, DIRECTORY/NAME/vectors.json: [{"text", "ids"}, ...]
without special tokens. A GGUF file does not hold a tokenizer's normalizer and pre-tokenizer: FAMILIES below does.

--check encodes the vectors with the Python package `tokenizers`. The rest needs nothing but pip.

Some of these vocabularies are under licences that forbid passing them on (Llama 3, Gemma); keep them local.
"""
import argparse
import base64
import json
import os
import struct
import sys
import tarfile
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from pinned_package import fetch  # noqa: E402

SDIST = "llama-cpp-python"
FIRST_WORD = "\u2581"  # sentencepiece's blank
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # token types


# --- GGUF -------------------------------------------------------------------------------------------------------------

class GgufMetadata:
    """The key-value pairs at the head of a GGUF file (little-endian, version 2 or 3)."""

    SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    STRING, ARRAY = 8, 9

    def __init__(self, content):
        self.content, self.position = content, 4
        if content[:4] != b"GGUF" or self.numbers("I", 1)[0] not in (2, 3):
            raise ValueError("not a GGUF file of version 2 or 3")
        self.tensor_count, = self.numbers("Q", 1)
        self.values = {}
        for _ in range(self.numbers("Q", 1)[0]):
            key = self.string()
            self.values[key] = self.value(self.numbers("I", 1)[0])

    def numbers(self, letter, count):
        layout = "<%d%s" % (count, letter)
        values = struct.unpack_from(layout, self.content, self.position)
        self.position += struct.calcsize(layout)
        return values

    def string(self):
        length = self.numbers("Q", 1)[0]
        self.position += length
        return self.content[self.position - length:self.position].decode("utf-8", "replace")

    def value(self, kind):
        if kind == self.STRING:
            return self.string()
        if kind != self.ARRAY:
            return self.numbers(self.SCALARS[kind], 1)[0]
        kind = self.numbers("I", 1)[0]
        count = self.numbers("Q", 1)[0]
        if kind == self.STRING:
            return [self.string() for _ in range(count)]
        return list(self.numbers(self.SCALARS[kind], count))

    def __getitem__(self, key):
        return self.values["tokenizer.ggml." + key]

    def get(self, key):
        return self.values.get("tokenizer.ggml." + key)


# --- Components of tokenizer.json -------------------------------------------------------------------------------------

def typed(name, **fields):
    return dict(type=name, **fields)


def split(pattern, behavior="Isolated"):
    return typed("Split", pattern=pattern, behavior=behavior, invert=False)


def regex(text):
    return {"Regex": text}


def byte_level(use_regex):
    return typed("ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=use_regex)


def chain(*members):
    return typed("Sequence", pretokenizers=list(members))


def added(index, content, special=True, **flags):
    token = dict(id=index, content=content, single_word=False, lstrip=False, rstrip=False, normalized=False,
                 special=special)
    token.update(flags)
    return token


def template(tokens, before, after):
    """`before` and `after` are ids around the text."""
    def special(index):
        return {"SpecialToken": {"id": tokens[index], "type_id": 0}}
    text, second = ({"Sequence": {"id": x, "type_id": 0}} for x in "AB")
    left, right = [special(x) for x in before], [special(x) for x in after]
    return typed("TemplateProcessing", single=left + [text] + right, pair=left + [text] + right + [second] + right,
                 special_tokens={tokens[x]: {"id": tokens[x], "ids": [x], "tokens": [tokens[x]]}
                                 for x in before + after})


CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = split(regex(CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + TAIL))
QWEN2 = split(regex(CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + TAIL))
QWEN35 = split(regex(CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|" + TAIL.replace(r"\p{L}", r"\p{L}\p{M}")))
DIGITS = typed("Digits", individual_digits=True)
FALCON = chain(typed("Punctuation", behavior="Contiguous"), byte_level(True), typed("Digits", individual_digits=False),
               split(regex("[0-9][0-9][0-9]")))
DEEPSEEK_CODER = chain(split(regex(r"[\r\n]")), split(regex(r"\s?\p{L}+")), split(regex(r"\s?\p{P}+")),
                       split(regex("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+")), DIGITS, byte_level(False))


# --- Models -----------------------------------------------------------------------------------------------------------

def document(added_tokens, normalizer, pre_tokenizer, post_processor, model):
    return dict(version="1.0", truncation=None, padding=None, added_tokens=added_tokens, normalizer=normalizer,
                pre_tokenizer=pre_tokenizer, post_processor=post_processor, decoder=None, model=model)


def bpe_model(vocabulary, merges, **options):
    model = typed("BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None,
                  fuse_unk=False, byte_fallback=False, ignore_merges=False, vocab=vocabulary, merges=merges)
    model.update(options)
    return model


def special_tokens(gguf):
    return [added(i, token, kind == CONTROL) for i, (token, kind) in enumerate(zip(gguf["tokens"], gguf["token_type"]))
            if kind in (CONTROL, USER_DEFINED)]


def byte_level_bpe(normalizer, pre_tokenizer, before=(), after=(), **options):
    def make(gguf):
        tokens = gguf["tokens"]
        known = special_tokens(gguf)
        # The package numbers added tokens behind the vocabulary, so only the last ones may be left out of that.
        size = len(tokens)
        while size > 0 and gguf["token_type"][size - 1] in (CONTROL, USER_DEFINED):
            size -= 1
        vocabulary = {token: i for i, token in enumerate(tokens[:size])}
        merges = [merge.split(" ", 1) for merge in gguf["merges"]]
        return document(known, normalizer, pre_tokenizer, template(tokens, list(before), list(after)),
                        bpe_model(vocabulary, merges, **options))
    return make


def merges_of_scores(tokens, scores):
    """Every way to put a piece together from two others, in the order of the pieces' scores."""
    vocabulary = {token: i for i, token in enumerate(tokens)}
    found = []
    for token, score in zip(tokens, scores):
        pairs = [(token[:i], token[i:]) for i in range(1, len(token))]
        pairs = [(a, b) for a, b in pairs if a in vocabulary and b in vocabulary]
        found += [(score, a, b) for a, b in sorted(pairs, key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))]
    found.sort(key=lambda entry: -entry[0])
    return [[a, b] for _, a, b in found]


def sentencepiece_bpe(gguf):
    tokens = gguf["tokens"]
    known = [added(i, t, normalized=kind != USER_DEFINED) for i, (t, kind) in enumerate(zip(tokens, gguf["token_type"]))
             if kind in (UNKNOWN, CONTROL, USER_DEFINED)]
    normalizer = typed("Sequence", normalizers=[
        typed("Prepend", prepend=FIRST_WORD), typed("Replace", pattern={"String": " "}, content=FIRST_WORD)])
    scores = [score if kind == NORMAL else float("-inf") for score, kind in zip(gguf["scores"], gguf["token_type"])]
    return document(known, normalizer, None, template(tokens, [gguf["bos_token_id"]], []),
                    bpe_model({token: i for i, token in enumerate(tokens)}, merges_of_scores(tokens, scores),
                              unk_token=tokens[0], fuse_unk=True, byte_fallback=True))


def gemma(gguf):
    tokens = gguf["tokens"]
    merges = []
    for merge in gguf["merges"]:
        middle = merge.index(" ", 1)
        merges.append([merge[:middle], merge[middle + 1:]])
    return document(special_tokens(gguf), typed("Replace", pattern={"String": " "}, content=FIRST_WORD),
                    split({"String": " "}, "MergedWithPrevious"),
                    template(tokens, [gguf["bos_token_id"]], [gguf["eos_token_id"]]),
                    bpe_model({token: i for i, token in enumerate(tokens)}, merges, unk_token="<unk>", fuse_unk=True,
                              byte_fallback=True))


def xlm_roberta(gguf):
    tokens = list(gguf["tokens"])
    mask = gguf["mask_token_id"]
    tokens[mask] = "<mask>"
    known = [added(i, tokens[i]) for i in range(4)] + [added(mask, "<mask>", lstrip=True)]
    charsmap = base64.b64encode(bytes(x & 0xFF for x in gguf["precompiled_charsmap"])).decode()
    return document(known, typed("Precompiled", precompiled_charsmap=charsmap),
                    chain(typed("WhitespaceSplit"),
                          typed("Metaspace", replacement=FIRST_WORD, prepend_scheme="always", split=True)),
                    template(tokens, [0], [2]),
                    typed("Unigram", unk_id=3, byte_fallback=False,
                          vocab=[[token, float(score)] for token, score in zip(tokens, gguf["scores"])]))


def bert(gguf):
    known = special_tokens(gguf)
    special = {token["content"] for token in known}
    tokens = []
    for token in gguf["tokens"]:
        if token in special or token.startswith("["):
            tokens.append(token)
        else:
            tokens.append(token[1:] if token.startswith(FIRST_WORD) else "##" + token)
    return document(known, typed("BertNormalizer", clean_text=True, handle_chinese_chars=True, strip_accents=None,
                                 lowercase=True), typed("BertPreTokenizer"),
                    template(tokens, [gguf["cls_token_id"]], [gguf["seperator_token_id"]]),
                    typed("WordPiece", unk_token="[UNK]", continuing_subword_prefix="##", max_input_chars_per_word=100,
                          vocab={token: i for i, token in enumerate(tokens)}))


# name -> (the vocabulary's name in the package, its maker)
NFC = typed("NFC")
FAMILIES = {
    "llama3": ("llama-bpe", byte_level_bpe(None, chain(LLAMA3, byte_level(False)), [128000], ignore_merges=True)),
    "qwen2": ("qwen2", byte_level_bpe(NFC, chain(QWEN2, byte_level(False)), (), [151643])),
    "qwen35": ("qwen35", byte_level_bpe(None, chain(QWEN35, byte_level(False)), (), [151643])),
    "gpt2": ("gpt-2", byte_level_bpe(None, byte_level(True))),
    "gpt_neox": ("gpt-neox", byte_level_bpe(NFC, byte_level(True))),
    "mpt": ("mpt", byte_level_bpe(NFC, byte_level(True))),
    "falcon": ("falcon", byte_level_bpe(None, FALCON)),
    "starcoder": ("starcoder", byte_level_bpe(None, chain(DIGITS, byte_level(True)))),
    "refact": ("refact", byte_level_bpe(None, chain(DIGITS, byte_level(True)))),
    "command_r": ("command-r", byte_level_bpe(NFC, chain(DIGITS, byte_level(True)), [5])),
    "deepseek_coder": ("deepseek-coder", byte_level_bpe(None, DEEPSEEK_CODER, [32013])),
    "llama2": ("llama-spm", sentencepiece_bpe),
    "phi3": ("phi-3", sentencepiece_bpe),
    "baichuan": ("baichuan", sentencepiece_bpe),
    "gemma": ("gemma-4", gemma),
    "xlm_roberta": ("nomic-bert-moe", xlm_roberta),
    "bert": ("bert-bge", bert),
}


# --- Files ------------------------------------------------------------------------------------------------------------

def vocabulary_files(sdist):
    """name of the vocabulary -> {"gguf", "inp", "out"} -> content"""
    wanted = {source for source, _ in FAMILIES.values()}
    files = {}
    with tarfile.open(sdist) as archive:
        for member in archive:
            name = os.path.basename(member.name)
            if not name.startswith("ggml-vocab-") or ".gguf" not in name:
                continue
            source = name[len("ggml-vocab-"):name.index(".gguf")]
            if source in wanted:
                files.setdefault(source, {})[name.rsplit(".", 1)[1]] = archive.extractfile(member).read()
    return files


def vectors_of(files):
    if "inp" not in files:
        return []
    texts = files["inp"].decode("utf-8").split("\n__ggml_vocab_test__\n")
    ids = [[int(x) for x in line.split()] for line in files["out"].decode("ascii").split("\n")]
    return [{"text": text, "ids": expected} for text, expected in zip(texts, ids)]


def write_json(path, content):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file, ensure_ascii=False)


def check(path, vectors):
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(path)
    wrong = [vector for vector in vectors
             if tokenizer.encode(vector["text"], add_special_tokens=False).ids != vector["ids"]]
    for vector in wrong[:2]:
        print("    %r: %s instead of %s" % (
            vector["text"], tokenizer.encode(vector["text"], add_special_tokens=False).ids, vector["ids"]))
    return "%d of %d vectors" % (len(vectors) - len(wrong), len(vectors))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("--sdist", help="the source package, when it is on this machine already")
    parser.add_argument("--only", action="append", choices=sorted(FAMILIES), help="may be repeated")
    parser.add_argument("--check", action="store_true", help="encode the vectors with the Python package")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = vocabulary_files(fetch(SDIST, folder, ("--no-binary", ":all:"), arguments.sdist))
    for name in arguments.only or FAMILIES:
        source, make = FAMILIES[name]
        if "gguf" not in files.get(source, {}):
            print("%-16s not in this version of %s" % (name, SDIST))
            continue
        target = os.path.join(arguments.directory, name)
        os.makedirs(target, exist_ok=True)
        path = os.path.join(target, "tokenizer.json")
        write_json(path, make(GgufMetadata(files[source]["gguf"])))
        vectors = vectors_of(files[source])
        if vectors:
            write_json(os.path.join(target, "vectors.json"), vectors)
        print("%-16s %s" % (name, check(path, vectors) if arguments.check else "written"), flush=True)


if __name__ == "__main__":
    main()
