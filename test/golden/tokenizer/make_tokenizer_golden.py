"""Writes the numbers that test/tokenizer compares with, from the Python package `tokenizers` (made with 0.23.3).

Usage, from the repository root after scripts/setup.sh, with WordNet in /usr/share/wordnet:
    python test/golden/tokenizer/make_tokenizer_golden.py [minilm] [variants] [public DIRECTORY]

Outputs, all beside this file:
  minilm    wordnet_texts.txt        2,000 glosses and lemmas, one a line
            wordnet_ids.txt          their ids, vocabulary of all-MiniLM-L6-v2, not truncated
            wordnet_ids_max12.txt    the ids of the first 300, truncated to 12
            torture.jsonl            odd texts with ids, tokens and offsets, same vocabulary
  variants  variants/NAME/           small tokenizers with every other component (scripts/tokenizer_variants.py)
            variants.jsonl           first the texts; then for each variant {"variant": its name, "tokens": {id: string},
                                     "records": for each text null where the package refuses it, else
                                     [ids, offsets (begin, end, begin, ...), number of special tokens before and behind
                                     the text, [[index, string], ...] of tokens that are no strings of their ids]}
  public    public/texts.json        texts for the tokenizers of public models
            public/NAME.txt          their ids for DIRECTORY/NAME (scripts/fetch_tokenizers.py), a line for each text;
                                     the tokenizers themselves are not in the repository
"""
import glob
import json
import os
import random
import sys
import unicodedata

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import fuzz_tokenizer  # noqa: E402
import tokenizer_variants  # noqa: E402
from tokenizers import Tokenizer, __version__  # noqa: E402

MODEL = os.path.join(ROOT, ".deps", "models", "all-MiniLM-L6-v2")


def wordnet_texts():
    glosses, lemmas = [], []
    for path in sorted(glob.glob("/usr/share/wordnet/data.*")):
        for line in open(path, encoding="utf-8"):
            if line.startswith("  "):
                continue
            fields, gloss = line.split("|", 1)
            fields = fields.split()
            count = int(fields[3], 16)
            lemmas.append(", ".join(fields[4 + 2 * i].replace("_", " ") for i in range(count)))
            glosses.append(gloss.strip())
    rng = random.Random(7)
    return rng.sample(glosses, 1300) + rng.sample(lemmas, 700)


def handmade():
    return [
        "", " ", "   ", "\n", "\t\r\n", "a", ".", "Hello, world!", "\u0130stanbul", "I\u0131\u0130i", "DI\u015eARI \u0130\u00c7ERI",
        "Stra\u00dfe STRASSE \u1e9e", "\ufb01nd \ufb02ow \ufb00 \ufb03 \ufb04 \ufb05 \ufb06", "\u01c4 \u01c5 \u01c6 \u01f1 \u01f2",
        "caf\u00e9 Cafe\u0301 CAFE\u0301", "na\u00efve r\u00e9sum\u00e9 \u00fcber \u00c5ngstr\u00f6m \u212bngstr\u00f6m", "Ti\u1ebfng Vi\u1ec7t \u01a0\u01af\u01a1\u01b0",
        "\u0395\u03bb\u03bb\u03ac\u03b4\u03b1\u03c2 \u039f\u0394\u039f\u03a3 \u03a3 \u03c3\u03c2", "\u1f08\u03b8\u1fc6\u03bd\u03b1\u03b9 \u1f88 \u1fbc \u1ffc", "\u041c\u043e\u0441\u043a\u0432\u0430 \u0401\u0436 \u0419\u043e\u0434 \u0407\u0436\u0430\u043a",
        "\ud55c\uad6d\uc5b4 \ub300\ud55c\ubbfc\uad6d", "\u1112\u1161\u11ab\u1100\u116e\u11a8", "\uac00\uac01\ud7a3 \u3131\u314f \uffa1\uffc2",
        "\u4e2d\u6587\u5b57\u7b26", "\u4e2da\u6587b", "\u6771\u4eac\u306b\u884c\u304f", "\u30ab\u30bf\u30ab\u30ca \uff76\uff9e \u30ac \u304c \u304b\u3099",
        "\u3400\u4dbf\u4dc0 \u4e00\u9fff\ua000", "\U00020000\U0002a6df\U0002a6e0 \U0002a700\U0002b73f\U0002b740\U0002b81f\U0002b820",
        "\U0002b91f\U0002b920\U0002ceaf\U0002ceb0 \U0002f800\U0002fa1f\U00030000", "\uf900\ufaff \ufa0e", "\u3007\u3005\u3006",
        "a\u200bb\ufeffc", "\ufeffstart", "zero\u200cwidth\u200djoiner", "soft\u00adhyphen", "left\u200eright\u200fmarks \u202aembed\u202c",
        "ctrl\x00\x01\x02\x1f\x7f\x80\x9fx", "a\x0bb a\x0cb a\x85b", "\ue000\uf8ff\U000f0000\U0010fffd private", "un\u0378assigned\u0380 \U0001fffe \uffff \ufffe",
        "rep\ufffdlacement", "\u0378", "\ud7ff\ue000", "\ud7a4 \ud7b0 \ud7c7 \ud7cb", "line\u2028sep para\u2029sep",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd \U0001f1e9\U0001f1ea \u2764\ufe0f", "#\ufe0f\u20e3 1\ufe0f\u20e3", "\U0001f600\U0001f601 text \U0001f680",
        "e\u0301\u0327\u0323x", "a" + "\u0301" * 50 + "b", "\u0301abc", " \u0301 ", "\u0315\u0300\u05aeab\u0315\u0300\u05aec", "x\u1ac0\u0316y", "\u0344 \u0340\u0341 \u0f73\u0f71",
        "q\u0307\u0323 q\u0323\u0307", "\u0958 \u095c \u0929", "\u0b94 \u0bca \u0d4a", "\U0001d15e\U0001d157\U0001d165", "\U0001d400\U0001d7ff \U0001d552\U0001d553 \U0001d4d0",
        "\uff28\uff45\uff4c\uff4c\uff4f\uff01 \uff11\uff12\uff13", "\u2460\u2461 \u00bd \u00b2\u2083 \u2122 \u210c", "\u2126 \u212a \u212b", "\ufdfa \ufdfb",
        "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd \u05d0\u05d1\u05d2", "\u0645\u064e\u0631\u0652\u062d\u064e\u0628\u064b\u0627 \u0661\u0662\u0663", "\u061c\u0600\u06dd \u08e2 \u0890",
        "\u0939\u093f\u0928\u094d\u0926\u0940 \u0915\u094d\u0937", "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22 \u0e33", "\u1019\u103c\u1014\u103a\u1019\u102c", "\u10d0\u10d1 \u1c90\u1c91 \u10a0", "\u13a0\uab70", "\u1e00\u1e9b",
        "\U00010400\U00010428 \U00010d50 \U00016ea0 \u1c89 \ua7cb \ua7dc", "\u180e \u180b \u1885", "\u034f\u2060\u2061", "\U000e0041\U000e0100",
        "[MASK]", "[mask]", "a[MASK]b", "[[MASK]]", "[MASK", "MASK]", "[MASK][MASK]", " [MASK] [SEP][CLS][PAD][UNK] ", "[ MASK ]", "caf\u00e9[SEP]\u4e2d[SEP]", "[MA\u200bSK]", "[CLS] x [SEP] y",
        "x" * 99, "x" * 100, "x" * 101, "\u00e9" * 100, "\u00e9" * 101, "e\u0301" * 100, "\u4e2d" * 101, "supercalifragilisticexpialidocious" * 2, "a" * 100 + " b", "a" * 50 + "\u200b" * 60 + "a" * 50, "a" * 50 + "-" + "b" * 60,
        "$5.00+x=<y>^`|~", "don't can't I'm you'll we've", "e-mail: a.b@c.de http://x.y/z?q=1&r=2#s", "U.S.A. 3.14 1,000,000 50% #tag @user", "\u00ab\u00bb \u201c\u201d \u2018\u2019 \u2014 \u2013 \u2026", "\u00bf\u00a1 \u00a7 \u00b6 \u00b7",
        "\u3001\u3002\u300c\u300d\uff0c\uff0e\u30fb\u30fc", "\u06d4\u060c\u061b\u061f \u061d", "\u0964\u0965 \u09fd", "\u2e43 \u2e3a \u2e52", "\u166d \U000111c9", "\u20ac\u00a3\u00a5\u20bf \u00a4", "\u2212\u00d7\u00f7\u2260\u2264 \u226e\u226f", "\u037e \u0387 \u1fef \u2000\u2001 \u2329\u232a",
        "unaffable unbelievable tokenization embeddings", "a" * 5 + "\u00a0" + "b" * 5, "tab\tnew\nline\rret", "ALL CAPS \u00c0\u00c9\u00ce\u00d5\u00dc", "mixed\u4e2dCJK\u6587and\uac00latin\u3042",
    ]


def systematic():
    texts = []
    spaces = [c for c in range(0x110000) if chr(c).isspace()] + [0x200B, 0x2060, 0xFEFF, 0x180E]
    texts += ["a%cb %c c" % (chr(c), chr(c)) for c in spaces]
    for category in ("Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Mn", "Mc", "Me", "Nd", "Nl", "No",
                     "Lt", "Lm", "Cf", "Zs"):
        members = [c for c in range(0x110000) if unicodedata.category(chr(c)) == category]
        step = max(1, len(members) // 12)
        texts += ["x%cy %c" % (chr(c), chr(c)) for c in members[::step][:12]]
    return texts


def characters_of(texts):
    """Those of the texts in every normal form, lower case too."""
    result = {}
    for text in texts:
        for form in ("NFC", "NFD", "NFKC", "NFKD"):
            for c in sorted(set(unicodedata.normalize(form, text) + unicodedata.normalize(form, text.lower()))):
                result.setdefault(c)
    return list(result)


VARIANT_TEXTS = [
    "", " ", "Caf\u00e9 CAFE\u0301 the caf\u00e9", "Yesterday yesterday Yesterdays aYesterday", "New York  NEW YORK new  York Newt", "  <mask>  a<mask> <mask>. \t<mask>",
    "<unk> <UNK> <s>x</s> [MASK] [mask]", "foo FOO f\u00f6o foobar", "  double  spaces   here ", "!? a!b !!", "\u4e2d\u6587 \u4e2d", "e\u0301 \u00e9 E\u0301", "\ufb01 \u2460 \u00bd \ufdfa \uff21",
    "\ud55c\uad6d \u1112\u1161\u11ab", "\u0130\u0131 \u03a3\u03c3\u03c2", "q\u0323\u0307 q\u0307\u0323 \u1e69 s\u0323\u0307", "\u0958 \u0915\u093c \u0344", "a \u00a0b\u3000c\u2003", "the e_ a a_e ea", "x\u200by\ufeffz\x00", "(a)-[b], c...d", "\u226e <\u0338 \u2260",
    "I'm you'LL we've don't it's I'\u017f he'D they\u2019re", "12 345\u0663\u0664 x1y22 \u00bd\u00b2 3.14 1234567", "a\n\nb \n c\r\n\r\nd\t\te  \n", "  lead trail  ",
    "\u2581a\u2581\u2581b \u2581", "\u0120the \u010a<0x0A><0xE4>", "<s>x</s> <s></s>  <mask> y", "  <mask>\n<mask>foo", "\u2460\u0301 e\u0301\u0302 x\u0323\u0307 a\u0308\u200d", "\u1100\u1161\u0301 \u1161\u0301 \u0600ab\u0301 \u00a9\u200d\u263a",
    "\U0001f468\u200d\U0001f469 \u263a\ufe0f \U0001f1e9\U0001f1ea", "the token of the yesterday physics", "ababab qzq \u30ab\u3099 \u2126\u00aa", "\u4e2d\u6587\u5b57 \u3053\u306b \ud55c \u0939\u093f", "x" * 120, "\u00c9\u00e8 \u0416 \u05d0 \u0915\u094d\u0937", "...!!??--(())  []", "Yesterday,caf\u00e9;New York", "\ud7a4\U000323a0\U0001e030z \u1c89", "\u0301\u0301 \u200b\u200b", "\x00a\x01b\x7f", " \u00a0 \u3000a",
]


def write_lines(name, lines):
    with open(os.path.join(HERE, name), "w", encoding="utf-8", newline="") as file:
        file.write("".join(line + "\n" for line in lines))


def compact(value):
    return json.dumps(value, separators=(",", ":"))


def write_minilm():
    def record(text, encoding):
        return {"text": text, "ids": encoding.ids, "tokens": encoding.tokens,
                "offsets": [list(x) for x in encoding.offsets]}
    tokenizer = Tokenizer.from_file(os.path.join(MODEL, "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    texts = wordnet_texts()
    write_lines("wordnet_texts.txt", texts)
    write_lines("wordnet_ids.txt", [" ".join(map(str, e.ids)) for e in tokenizer.encode_batch(texts)])
    torture = handmade() + systematic()
    assert len(torture) >= 300, len(torture)
    write_lines("torture.jsonl", [json.dumps(record(t, tokenizer.encode(t))) for t in torture])
    tokenizer.enable_truncation(12)
    write_lines("wordnet_ids_max12.txt", [" ".join(map(str, e.ids)) for e in tokenizer.encode_batch(texts[:300])])
    print(len(torture), "odd texts")


def training_texts():
    with open(os.path.join(HERE, "wordnet_texts.txt"), encoding="utf-8") as file:
        return file.read().split("\n")


def short_record(record, strings):
    if "error" in record:
        return None
    mask = record["special_tokens_mask"]
    before = mask.index(0) if 0 in mask else len(mask)
    behind = mask[::-1].index(0) if 0 in mask else 0
    assert sum(mask) == before + behind
    own = [[i, token] for i, (token, x) in enumerate(zip(record["tokens"], record["ids"])) if token != strings[x]]
    return [record["ids"], record["offsets"], before, behind, own]


def write_variants():
    folder = os.path.join(HERE, "variants")
    rng = random.Random(11)
    texts = VARIANT_TEXTS + [fuzz_tokenizer.random_text(rng) for _ in range(12)]
    lines = [compact(texts)]
    written = tokenizer_variants.write_variants(folder, characters_of(VARIANT_TEXTS), training_texts())
    for variant in written:
        tokenizer = fuzz_tokenizer.peer(variant)
        records = fuzz_tokenizer.encode(tokenizer, texts)
        seen = sorted({i for record in records for i in record.get("ids", [])})
        strings = {i: tokenizer.id_to_token(i) for i in seen}
        lines.append(compact({"variant": os.path.basename(variant), "tokens": strings,
                              "records": [short_record(record, strings) for record in records]}))
    write_lines("variants.jsonl", lines)
    print(len(written), "variants,", len(texts), "texts each")


def write_public(directory):
    rng = random.Random(12)
    texts = handmade()[:-1] + VARIANT_TEXTS + training_texts()[:40]
    texts += [fuzz_tokenizer.random_text(rng) for _ in range(60)]
    texts = [text for text in texts if len(text) < 90]
    os.makedirs(os.path.join(HERE, "public"), exist_ok=True)
    write_lines(os.path.join("public", "texts.json"), [json.dumps(texts)])
    for folder in sorted(glob.glob(os.path.join(directory, "*", "tokenizer.json"))):
        name = os.path.basename(os.path.dirname(folder))
        records = fuzz_tokenizer.encode(fuzz_tokenizer.peer(os.path.dirname(folder)), texts)
        write_lines(os.path.join("public", name + ".txt"), [" ".join(map(str, record["ids"])) for record in records])
        print(name, len(texts), "texts")


def main():
    print("tokenizers", __version__)
    parts = sys.argv[1:] or ["minilm", "variants"]
    if "minilm" in parts:
        write_minilm()
    if "variants" in parts:
        write_variants()
    if "public" in parts:
        write_public(parts[parts.index("public") + 1])


if __name__ == "__main__":
    main()
