#!/usr/bin/env python3
"""Compares `stft tokenize` with the Python package `tokenizers` (0.23) on random strings rich in Unicode.

    python scripts/fuzz_tokenizer.py --stft build/release/stft --model MODEL_DIRECTORY [--count N] [--seed S]

Checked: ids, token strings and offsets, on MODEL_DIRECTORY and on variants made here whose vocabulary holds every
assigned code point, so that no difference hides behind [UNK]. Exit code 1 and the first differences when there are any.
The variants can be written for other uses with --write-variants DIRECTORY.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import Tokenizer, normalizers

WORDS = ("the of and a in to is was physics Istanbul Stra\u00dfe caf\u00e9 na\u00efve don't e-mail $5.00 [MASK] [SEP] "
         "[mask] [CLS] <mask> <unk> unbelievable tokenization 3.14 \u4e2d\u6587 \u3053\u3093\u306b\u3061\u306f "
         "\ud55c\uad6d\uc5b4 \u0395\u03bb\u03bb\u03ac\u03b4\u03b1\u03a3 \u041c\u043e\u0441\u043a\u0432\u0430 "
         "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u0939\u093f\u0928\u094d\u0926\u0940 "
         "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22 Ti\u1ebfng Vi\u1ec7t \ufb01ne \ufdfa \u2460 \u00bd New York "
         "yesterday Yesterday abc ABC foo Foo").split(" ")
RANGES = [(0x20, 0x7E)] * 6 + [
    (0x00, 0x1F), (0x7F, 0xA0), (0xA1, 0x17F), (0x180, 0x24F), (0x250, 0x2FF), (0x300, 0x36F), (0x370, 0x3FF),
    (0x400, 0x52F), (0x590, 0x5FF), (0x600, 0x6FF), (0x8A0, 0x8FF), (0x900, 0xDFF), (0xE00, 0xFFF), (0x1100, 0x11FF),
    (0x1680, 0x180F), (0x1AB0, 0x1AFF), (0x1DC0, 0x1DFF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x20CF),
    (0x20D0, 0x20FF), (0x2100, 0x214F), (0x2190, 0x23FF), (0x2460, 0x24FF), (0x2C00, 0x2E7F), (0x3000, 0x30FF),
    (0x3400, 0x34FF), (0x4DB0, 0x4E20), (0x9FF0, 0xA000), (0xA640, 0xA6FF), (0xA720, 0xA7FF), (0xA8C0, 0xABFF),
    (0xAC00, 0xD7A3), (0xD7B0, 0xD7FF), (0xE000, 0xE010), (0xF900, 0xFAFF), (0xFB00, 0xFDFF), (0xFE00, 0xFEFF),
    (0xFF00, 0xFFFF), (0x10000, 0x100FF), (0x10400, 0x1044F), (0x10A00, 0x10AFF), (0x10D20, 0x10D85),
    (0x11000, 0x11FFF), (0x16E40, 0x16FFF), (0x1D100, 0x1D1FF), (0x1D400, 0x1D7FF), (0x1E000, 0x1E95F),
    (0x1F100, 0x1F6FF), (0x20000, 0x20010), (0x2A6D0, 0x2A710), (0x2B730, 0x2B930), (0x2CEA0, 0x2CEC0),
    (0x2F800, 0x2FA1F), (0xE0000, 0xE01FF), (0x10FFF0, 0x10FFFF)]
MARKS = [c for c in range(0x110000) if unicodedata.category(chr(c)) in ("Mn", "Mc", "Me")]
SPACES = " \t\r\u00a0\u1680\u2000\u2003\u2028\u2029\u202f\u205f\u3000\u200b\ufeff\x0b\x0c\x85"


def random_char(rng):
    if rng.random() < 0.02:
        while True:
            c = rng.randrange(0x110000)
            if not 0xD800 <= c < 0xE000:
                return chr(c)
    low, high = rng.choice(RANGES)
    return chr(rng.randint(low, high))


def random_piece(rng):
    kind = rng.random()
    if kind < 0.35:
        return rng.choice(WORDS)
    if kind < 0.55:
        return "".join(random_char(rng) for _ in range(rng.randint(1, 8)))
    if kind < 0.67:
        return rng.choice("aeiouAEI<>=\u4e2d\u05d0\u0915\uac00\u1100\u0130") + "".join(
            chr(rng.choice(MARKS)) for _ in range(rng.randint(1, 5)))
    if kind < 0.75:
        low, high = rng.choice(RANGES)
        return "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 10)))
    if kind < 0.80:
        return rng.choice("[]<>(){}!?.,;:-_'\"/\\@#$%^&*+=|~`") * rng.randint(1, 3)
    if kind < 0.81:
        return rng.choice("ax\u00e9\u4e00") * rng.randint(95, 105)
    return "".join(rng.choice(SPACES) for _ in range(rng.randint(1, 3)))


def random_text(rng):
    joiner = rng.choice([" ", " ", "", ""])
    text = joiner.join(random_piece(rng) for _ in range(rng.randint(0, 8)))
    return text.replace("\n", " ")


def every_char_vocabulary():
    vocabulary = {token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>"])}
    for c in range(0x110000):
        category = unicodedata.category(chr(c))
        if category == "Cs" or (category in ("Co", "Cn") and c % 64):
            continue
        vocabulary.setdefault(chr(c), len(vocabulary))
        vocabulary.setdefault("##" + chr(c), len(vocabulary))
    for word in ("the", "phys", "##ics", "token", "##ization", "\u1112\u1161\u11ab", "##\u03bb\u03bb", "  ", "foo bar"):
        vocabulary.setdefault(word, len(vocabulary))
    return vocabulary


def added(content, **flags):
    token = {"content": content, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": False}
    token.update(flags)
    return token


def bert(**options):
    normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                  "lowercase": True}
    normalizer.update(options)
    return normalizer


def sequence(key, *members):
    return {"type": "Sequence", key: list(members)}


def plain(name, **options):
    return dict({"type": name}, **options)


def template(before, after, ids):
    def special(name):
        return {"SpecialToken": {"id": name, "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    return {"type": "TemplateProcessing", "single": [special(x) for x in before] + [text] + [special(x) for x in after],
            "pair": [text, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {x: {"id": x, "ids": [ids[x]], "tokens": [x]} for x in set(before + after)}}


def variants(vocabulary):
    """name -> (tokenizer.json, do_lower_case)"""
    n = len(vocabulary)
    specials = [added(x, special=True) for x in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")]
    roberta = {"type": "RobertaProcessing", "sep": ["</s>", vocabulary["</s>"]], "cls": ["<s>", vocabulary["<s>"]],
               "trim_offsets": True, "add_prefix_space": True}
    bert_post = {"type": "BertProcessing", "sep": ["[SEP]", vocabulary["[SEP]"]], "cls": ["[CLS]", vocabulary["[CLS]"]]}
    bert_pre = plain("BertPreTokenizer")
    table = {
        "uncased": (specials, bert(), bert_pre, bert_post, False),
        "cased": (specials, bert(lowercase=False), bert_pre,
                  template(["[CLS]"], ["[SEP]", "[MASK]"], vocabulary), False),
        "cased_lowered": (specials, bert(lowercase=False), bert_pre, bert_post, True),
        "accents_kept": (specials, bert(strip_accents=False, clean_text=False), bert_pre, bert_post, False),
        "accents_stripped_cased": (specials, bert(strip_accents=True, lowercase=False, handle_chinese_chars=False),
                                   bert_pre, None, False),
        "mpnet": ([added("<s>", special=True, normalized=True),
                   added("[UNK]", special=True),
                   added("<unk>", special=True, normalized=True),
                   added("<mask>", special=True, lstrip=True)], bert(), bert_pre, roberta, False),
        "added": ([added("<mask>", lstrip=True, rstrip=True, single_word=True),
                   added("Yesterday", normalized=True, single_word=True),
                   added("New York", normalized=True, rstrip=True), added("New"),
                   added("\u4e2d", normalized=True, lstrip=True), added("e\u0301", normalized=True),
                   added("FOO", normalized=True), added("  ")] + specials, bert(), bert_pre, bert_post,
                  False),
        "nfc": (specials, plain("NFC"), plain("Whitespace"), None, False),
        "nfd": (specials, plain("NFD"), plain("WhitespaceSplit"), None, False),
        "nfkc": ([added("foo", normalized=True)], plain("NFKC"), plain("Punctuation", behavior="MergedWithPrevious"),
                 None, False),
        "nfkd_strip": ([added("the ", normalized=True, lstrip=True)],
                       sequence("normalizers", plain("NFKD"), plain("StripAccents"), plain("Lowercase"),
                                plain("Strip", strip_left=True, strip_right=True)),
                       sequence("pretokenizers", plain("WhitespaceSplit"), plain("Punctuation", behavior="Contiguous")),
                       roberta, False),
        "lower_nfd_strip": (specials, sequence("normalizers", plain("Lowercase"), plain("NFD"), plain("StripAccents")),
                            bert_pre, bert_post, False),
        "replace": (specials, sequence("normalizers", plain("Replace", pattern={"String": "a"}, content="\u00e9e "),
                                       plain("Replace", pattern={"String": " "}, content="_"),
                                       plain("Replace", pattern={"String": "e_"}, content=""), plain("NFC"),
                                       plain("Strip", strip_left=False, strip_right=True)),
                    plain("Punctuation", behavior="MergedWithNext"), None, False),
        "bare": ([added(" ", rstrip=True), added("!", lstrip=True)], None, None, roberta, False),
        "punctuation_removed": (specials, None, plain("Punctuation", behavior="Removed"), None, False),
    }
    result = {}
    for tokens in (entry[0] for entry in table.values()):
        free = n
        for token in tokens:  # as the package numbers them
            token["id"] = vocabulary.get(token["content"], free)
            free = max(free, token["id"] + 1)
    for name, (tokens, normalizer, pre_tokenizer, post_processor, lower) in table.items():
        result[name] = ({"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens,
                         "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": post_processor,
                         "decoder": None,
                         "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                                   "max_input_chars_per_word": 100, "vocab": vocabulary}}, lower)
    return result


def write_variants(folder, vocabulary):
    folders = []
    for name, (content, lower) in variants(vocabulary).items():
        path = os.path.join(folder, name)
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, "tokenizer.json"), "w", encoding="utf-8") as file:
            json.dump(content, file)
        if lower:
            with open(os.path.join(path, "sentence_bert_config.json"), "w") as file:
                json.dump({"max_seq_length": None, "do_lower_case": True}, file)
        folders.append(path)
    return folders


def peer(folder):
    """The package's tokenizer as sentence-transformers sets it up, and the truncation that stft applies."""
    tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    limit = None
    for name, key in (("tokenizer_config.json", "model_max_length"), ("sentence_bert_config.json", "max_seq_length")):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            config = json.load(open(path))
            limit = config.get(key) or limit
            if config.get("do_lower_case") and key == "max_seq_length":
                tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), tokenizer.normalizer])
    if limit and limit < 1e9:
        tokenizer.enable_truncation(int(limit))
    return tokenizer


def compare(stft, folder, texts):
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="", suffix=".txt") as file:
        file.write("".join(text + "\n" for text in texts))
        file.flush()
        answer = subprocess.run([stft, "tokenize", folder, "--input", file.name], capture_output=True)
    if answer.returncode != 0:
        raise SystemExit("%s: exit code %d: %s" % (folder, answer.returncode, answer.stderr.decode()[:2000]))
    lines = answer.stdout.decode("utf-8").split("\n")
    assert len(lines) == len(texts) + 1, (len(lines), len(texts))
    differences = []
    for text, line, expected in zip(texts, lines, peer(folder).encode_batch(texts)):
        ours = json.loads(line)
        theirs = {"ids": expected.ids, "tokens": expected.tokens, "offsets": [list(x) for x in expected.offsets]}
        if ours != theirs:
            differences.append((text, ours, theirs))
    return differences


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stft", help="the program")
    parser.add_argument("--model", action="append", default=[], help="a model directory; may be repeated")
    parser.add_argument("--count", type=int, default=20000, help="strings for each model and variant")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=5, help="differences shown for each model")
    parser.add_argument("--write-variants", metavar="DIRECTORY")
    arguments = parser.parse_args()
    if arguments.write_variants:
        write_variants(arguments.write_variants, every_char_vocabulary())
        return 0
    if not arguments.stft:
        parser.error("--stft is needed")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for model in arguments.model + write_variants(folder, every_char_vocabulary()):
            rng = random.Random("%d %s" % (arguments.seed, os.path.basename(model)))
            differences = []
            for start in range(0, arguments.count, 20000):
                texts = [random_text(rng) for _ in range(min(20000, arguments.count - start))]
                differences += compare(arguments.stft, model, texts)
            print("%-24s %d strings, %d differences" % (os.path.basename(model), arguments.count, len(differences)),
                  flush=True)
            for text, ours, theirs in differences[:arguments.show]:
                print("  text   %r %s\n  stft   %s\n  peer   %s" % (
                    text, " ".join("%04X" % ord(c) for c in text[:40]), json.dumps(ours), json.dumps(theirs)))
            failed += bool(differences)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
