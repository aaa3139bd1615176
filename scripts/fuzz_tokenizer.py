#!/usr/bin/env python3
"""Compares stft's tokenizer with the Python package `tokenizers` (0.23) on random strings rich in Unicode.

    python scripts/fuzz_tokenizer.py --peer build/release/test/tokenizer/fuzz_peer [--model DIRECTORY]... [--models FILE]
                                     [--variants] [--count N] [--seed S] [--jobs J] [--max-length M]

Checked: ids, token strings, offsets and special-token masks (or that both refuse a text), on each model directory and on
the variants of tokenizer_variants.py. Half of the strings are made of the very tokenizer's vocabulary and added tokens.
Prints one line for each model; exit code 1 and the first differences when there are any. A string depends on the seed,
the model's name and its number alone, not on the number of jobs.
"""
import argparse
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
import unicodedata

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the jobs are processes
from tokenizers import Tokenizer, normalizers, pre_tokenizers  # noqa: E402
from tokenizers.implementations import BertWordPieceTokenizer  # noqa: E402

import tokenizer_variants  # noqa: E402

CHUNK = 50000
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TRAINING_TEXTS = os.path.join(ROOT, "test", "golden", "tokenizer", "wordnet_texts.txt")

WORDS = ("the of and a in to is was physics Istanbul Stra\u00dfe caf\u00e9 na\u00efve don't e-mail $5.00 [MASK] [SEP] "
         "[mask] [CLS] <mask> <unk> unbelievable tokenization 3.14 \u4e2d\u6587 \u3053\u3093\u306b\u3061\u306f "
         "\ud55c\uad6d\uc5b4 \u0395\u03bb\u03bb\u03ac\u03b4\u03b1\u03a3 \u041c\u043e\u0441\u043a\u0432\u0430 "
         "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u0939\u093f\u0928\u094d\u0926\u0940 "
         "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22 Ti\u1ebfng Vi\u1ec7t \ufb01ne \ufdfa \u2460 \u00bd New York "
         "yesterday Yesterday abc ABC foo Foo <s> </s> <0x0A> <0xE4> <|endoftext|> <|startoftext|>").split(" ")
RANGES = [(0x20, 0x7E)] * 6 + [
    (0x00, 0x1F), (0x7F, 0xA0), (0xA1, 0x17F), (0x180, 0x24F), (0x250, 0x2FF), (0x300, 0x36F), (0x370, 0x3FF),
    (0x400, 0x52F), (0x590, 0x5FF), (0x600, 0x6FF), (0x8A0, 0x8FF), (0x900, 0xDFF), (0xE00, 0xFFF), (0x1100, 0x11FF),
    (0x1680, 0x180F), (0x1AB0, 0x1AFF), (0x1DC0, 0x1DFF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x20CF),
    (0x20D0, 0x20FF), (0x2100, 0x214F), (0x2190, 0x23FF), (0x2460, 0x24FF), (0x2C00, 0x2E7F), (0x3000, 0x30FF),
    (0x3400, 0x34FF), (0x4DB0, 0x4E20), (0x9FF0, 0xA000), (0xA640, 0xA6FF), (0xA720, 0xA7FF), (0xA8C0, 0xABFF),
    (0xAC00, 0xD7A3), (0xD7B0, 0xD7FF), (0xE000, 0xE010), (0xF900, 0xFAFF), (0xFB00, 0xFDFF), (0xFE00, 0xFEFF),
    (0xFF00, 0xFFFF), (0x10000, 0x100FF), (0x10400, 0x1044F), (0x10A00, 0x10AFF), (0x10D20, 0x10D85),
    (0x11000, 0x11FFF), (0x13430, 0x14400), (0x16E40, 0x16FFF), (0x1D100, 0x1D1FF), (0x1D400, 0x1D7FF),
    (0x1E000, 0x1E95F), (0x1F100, 0x1F6FF), (0x1F900, 0x1FAFF), (0x20000, 0x20010), (0x2A6D0, 0x2A710),
    (0x2B730, 0x2B930), (0x2CEA0, 0x2CEC0), (0x2EBF0, 0x2EE5D), (0x2F800, 0x2FA1F), (0x31350, 0x323AF),
    (0xE0000, 0xE01FF), (0x10FFF0, 0x10FFFF)]
CATEGORIES = {}
for _c in range(0x110000):
    CATEGORIES.setdefault(unicodedata.category(chr(_c)), []).append(chr(_c))
MARKS = CATEGORIES["Mn"] + CATEGORIES["Mc"] + CATEGORIES["Me"]
NUMBERS = "0123456789" * 40 + "".join(CATEGORIES["Nd"] + CATEGORIES["Nl"] + CATEGORIES["No"])
SPACES = " \t\r\u00a0\u1680\u2000\u2003\u2028\u2029\u202f\u205f\u3000\u200b\ufeff\x0b\x0c\x85"
BLANKS = [" "] * 6 + ["  ", "   ", "\n", "\n\n", "\r\n", "\r\n\r\n", "\t", "\r", " \n", "\n ", " \t ", "\u00a0", "\u2028", "\u3000"]
APOSTROPHES = ["'"] * 6 + ["\u2019", "\uff07", "\u02bc", "`", "''"]
ENDINGS = ["s", "t", "re", "ve", "m", "ll", "d", "S", "T", "RE", "Ve", "vE", "M", "LL", "Ll", "lL", "D", "\u017f", "\u017ft",
           "\u212a", "l", "r", "v", "\u1e9e", "\ufb06", "e", "sx", "dd", "\u017f\u017f", "s\u0301"]
BYTE_CHARACTERS = sorted(pre_tokenizers.ByteLevel.alphabet())
JAMO = [chr(c) for low, high in ((0x1100, 0x1112), (0x1160, 0x1175), (0x11A8, 0x11C2), (0xA960, 0xA964), (0xD7B0, 0xD7B4),
                                 (0xAC00, 0xAC1D)) for c in range(low, high + 1)]
EMOJI = list("\U0001f468\U0001f469\U0001f467\u2764\U0001f600\U0001f3f3\u263a\u00a9\u00ae\U0001f44d") + ["\u200d"] * 5 + [
    "\ufe0f", "\ufe0f", "\U0001f3fd", "\u20e3", "\U0001f1e9", "\U0001f1ea", "\U0001f1eb", "1", "#", "\U000e0067", "\U000e007f"]
CLUSTERS = list("\u0600\u06dd\u0915\u0937\u0930\u094d\u094d\u0903\u093c\u0301\u0302\u200c\u200d\u1100\u1161\u11a8ax\u00a9\r\n\u0e33\u0d4e\x01")
PUNCTUATION = "[]<>(){}!?.,;:-_'\"/\\@#$%^&*+=|~`\u2581\u2581"
CONTEXTS = ["%s", "%s", "%s", " %s", "%s ", "a%sb", "%s%s", "%s %s", "\u4e2d%s", "%s\u0301", "%s.", "\n%s"]


# --- Texts ------------------------------------------------------------------------------------------------------------

class Material:
    """What a tokenizer's own file says that texts should hold."""

    def __init__(self, folder):
        content = read_tokenizer(folder)
        model = content["model"]
        vocabulary = [entry[0] for entry in model["vocab"]] if isinstance(model["vocab"], list) else list(model["vocab"])
        rng = random.Random(0)
        sample = rng.sample(vocabulary, min(len(vocabulary), 20000))
        decode = {c: bytes([b]) for b, c in byte_characters().items()}
        is_byte_level = "ByteLevel" in json.dumps(content["pre_tokenizer"])
        self.pieces = []
        for token in sample:
            if is_byte_level and all(c in decode for c in token):
                token = b"".join(decode[c] for c in token).decode("utf-8", "replace")
            for mark in ("##", "</w>"):
                token = token.replace(mark, "")
            self.pieces.append(token.replace("\u2581", " ") or "a")
        self.added = [token["content"] for token in content["added_tokens"]] or ["<s>"]


def byte_characters():
    """byte -> the character that stands for it in byte-level vocabularies"""
    shown = list(range(0x21, 0x7F)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    table = {b: chr(b) for b in shown}
    for b in range(256):
        table.setdefault(b, chr(0x100 + len(table) - len(shown)))
    return table


def random_char(rng):
    if rng.random() < 0.02:
        while True:
            c = rng.randrange(0x110000)
            if not 0xD800 <= c < 0xE000:
                return chr(c)
    low, high = rng.choice(RANGES)
    return chr(rng.randint(low, high))


def several(rng, characters, most):
    return "".join(rng.choices(characters, k=rng.randint(1, most)))


def damaged(rng, text):
    """A part of it, or another case of it, or something within it."""
    kind = rng.randrange(4)
    at = rng.randint(0, len(text))
    if kind == 0:
        return text[:at]
    if kind == 1:
        return text[at:]
    if kind == 2:
        return text.swapcase()
    return text[:at] + rng.choice([" ", "\u200b", "\u0301", "\x00", "x"]) + text[at:]


def of_the_file(rng, material):
    kind = rng.random()
    if kind < 0.25:
        token = rng.choice(material.added)
        if rng.random() < 0.3:
            token = damaged(rng, token)
        context = rng.choice(CONTEXTS)
        return context.replace("%s", token)
    return "".join(rng.choices(material.pieces, k=rng.randint(1, 4)))


def random_piece(rng):
    kind = rng.random()
    if kind < 0.22:
        return rng.choice(WORDS)
    if kind < 0.34:
        return "".join(random_char(rng) for _ in range(rng.randint(1, 8)))
    if kind < 0.42:
        return rng.choice("aeiouAEI<>=\u4e2d\u05d0\u0915\uac00\u1100\u0130") + several(rng, MARKS, 5)
    if kind < 0.48:
        low, high = rng.choice(RANGES)
        return "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 10)))
    if kind < 0.53:
        return rng.choice(PUNCTUATION) * rng.randint(1, 3)
    if kind < 0.56:
        return several(rng, PUNCTUATION, 6)
    if kind < 0.62:
        return several(rng, NUMBERS, 7)
    if kind < 0.68:
        return rng.choice(["I", "don", "\u00e9", "we", "", "1"]) + rng.choice(APOSTROPHES) + rng.choice(ENDINGS)
    if kind < 0.71:
        return several(rng, BYTE_CHARACTERS, 5)
    if kind < 0.75:
        return several(rng, EMOJI, 7)
    if kind < 0.78:
        return several(rng, JAMO, 6)
    if kind < 0.82:
        return several(rng, CLUSTERS, 7)
    if kind < 0.83:
        return "\u2581" * rng.randint(1, 4) + rng.choice(["", "a", " "])
    if kind < 0.835:
        return rng.choice("ax\u00e9\u4e00 1\n=") * rng.randint(95, 105)
    if kind < 0.91:
        return "".join(rng.choices(BLANKS, k=rng.randint(1, 3)))
    return several(rng, SPACES, 3)


def random_text(rng, material=None):
    joiner = rng.choice([" ", " ", "", ""])
    own = 0.5 if material else 0.0
    return joiner.join(of_the_file(rng, material) if rng.random() < own else random_piece(rng)
                       for _ in range(rng.randint(0, 7)))


# --- The package ------------------------------------------------------------------------------------------------------

def read_json(folder, name):
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def peer(folder):
    """The package's tokenizer as sentence-transformers sets it up, not truncating."""
    path = os.path.join(folder, "tokenizer.json")
    if os.path.exists(path):
        tokenizer = Tokenizer.from_file(path)
    else:
        lower = read_json(folder, "tokenizer_config.json").get("do_lower_case", True)
        tokenizer = BertWordPieceTokenizer(os.path.join(folder, "vocab.txt"), lowercase=lower)._tokenizer
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if read_json(folder, "sentence_bert_config.json").get("do_lower_case"):
        lower = [normalizers.Lowercase()]
        tokenizer.normalizer = normalizers.Sequence(lower + ([tokenizer.normalizer] if tokenizer.normalizer else []))
    return tokenizer


def read_tokenizer(folder):
    if os.path.exists(os.path.join(folder, "tokenizer.json")):
        return read_json(folder, "tokenizer.json")
    return json.loads(peer(folder).to_str())


def record(encoding):
    return {"ids": encoding.ids, "tokens": encoding.tokens, "offsets": [x for pair in encoding.offsets for x in pair],
            "special_tokens_mask": encoding.special_tokens_mask}


def encode(tokenizer, texts):
    """Records, or the reason why there is none."""
    try:
        return [record(encoding) for encoding in tokenizer.encode_batch(texts)]
    except Exception:  # one of the texts has no encoding
        pass
    results = []
    for text in texts:
        try:
            results.append(record(tokenizer.encode(text)))
        except Exception as error:
            results.append({"error": str(error)})
    return results


# --- Comparing --------------------------------------------------------------------------------------------------------

def write_texts(path, texts):
    with open(path, "w", encoding="ascii") as file:
        file.write("".join(json.dumps(text) + "\n" for text in texts))


class Job:
    """What a worker needs; workers keep the model that they used last."""

    def __init__(self, program, max_length, seed):
        self.program, self.max_length, self.seed = program, max_length, seed
        self.folder = self.tokenizer = self.material = None

    def load(self, folder):
        if self.folder != folder:
            self.folder, self.tokenizer, self.material = folder, peer(folder), Material(folder)
            if self.max_length:
                self.tokenizer.enable_truncation(self.max_length)

    def texts(self, chunk, count):
        rng = random.Random("%d %s %d" % (self.seed, os.path.basename(os.path.normpath(self.folder)), chunk))
        return [random_text(rng, self.material) for _ in range(count)]

    def differences(self, folder, chunk, count):
        self.load(folder)
        texts = self.texts(chunk, count)
        with tempfile.TemporaryDirectory() as scratch:
            source, target = os.path.join(scratch, "texts"), os.path.join(scratch, "answers")
            write_texts(source, texts)
            done = subprocess.run([self.program, folder, source, target, "1", str(self.max_length)], capture_output=True)
            if done.returncode != 0:
                return [("", {"exit": done.returncode, "stderr": done.stderr.decode("utf-8", "replace")[-500:]}, {})]
            with open(target, encoding="utf-8") as file:
                ours = file.read().split("\n")[:-1]
        assert len(ours) == len(texts), (len(ours), len(texts))
        found = []
        for text, line, expected in zip(texts, ours, encode(self.tokenizer, texts)):
            answer = json.loads(line)
            if answer != expected and not ("error" in answer and "error" in expected):
                found.append((text, answer, expected))
        return found


JOB = None


def start_worker(*arguments):
    global JOB
    JOB = Job(*arguments)


def run_chunk(task):
    try:
        return JOB.differences(*task)
    except Exception as error:  # shown with the model instead of ending the run
        return [("", {"script": repr(error)}, {})]


def shown(text, ours, theirs):
    keys = [key for key in theirs if ours.get(key) != theirs[key]] or list(ours)
    lines = ["  text   %s" % ascii(text)]
    if "error" in ours or "error" in theirs:
        keys = ["error", "tokens"]
    for key in keys:
        lines += ["  %-6s %s" % ("stft", ascii((key, ours.get(key)))), "  %-6s %s" % ("peer", ascii((key, theirs.get(key))))]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="the program fuzz_peer of test/tokenizer")
    parser.add_argument("--model", action="append", default=[], help="a model directory; may be repeated")
    parser.add_argument("--models", help="a file that lists model directories")
    parser.add_argument("--variants", action="store_true", help="the variants too")
    parser.add_argument("--count", type=int, default=20000, help="strings for each model and variant")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--max-length", type=int, default=0, help="truncate to this many ids; 0: do not")
    parser.add_argument("--show", type=int, default=3, help="differences shown for each model, the shortest")
    arguments = parser.parse_args()
    models = arguments.model + (open(arguments.models).read().split() if arguments.models else [])
    failed = 0
    setup = (arguments.peer, arguments.max_length, arguments.seed)
    with tempfile.TemporaryDirectory() as folder, multiprocessing.Pool(arguments.jobs, start_worker, setup) as pool:
        if arguments.variants:
            texts = open(TRAINING_TEXTS, encoding="utf-8").read().split("\n")
            models += tokenizer_variants.write_variants(folder, tokenizer_variants.every_character(), texts)
        for model in models:
            begin = time.time()
            tasks = [(model, start // CHUNK, min(CHUNK, arguments.count - start))
                     for start in range(0, arguments.count, CHUNK)]
            found = [difference for part in pool.imap_unordered(run_chunk, tasks) for difference in part]
            print("%-34s %d strings, %d differences, %.0f s" % (
                os.path.basename(os.path.normpath(model)), arguments.count, len(found), time.time() - begin), flush=True)
            for difference in sorted(found, key=lambda entry: (len(entry[0]), entry[0]))[:arguments.show]:
                print(shown(*difference), flush=True)
            failed += bool(found)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
