"""Small tokenizers that between them use every component of tokenizer.json that stft reads, for
scripts/fuzz_tokenizer.py and test/golden/tokenizer/make_tokenizer_golden.py.

`variants(alphabet, texts)` -> {name: Variant}. The characters of `alphabet` are all in the vocabularies that are meant to
have no unknown characters, so that no difference hides behind [UNK]; BPE and Unigram are trained on `texts`.
"""
import base64
import json
import os
import struct
import unicodedata
from typing import NamedTuple

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>"]
WORDS = ["the", "phys", "##ics", "token", "##ization", "\u1112\u1161\u11ab", "##\u03bb\u03bb", "  ", "foo bar", "caf", "##e",
         "foo", "##bar"]
FIRST_WORD = "\u2581"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
DEEPSEEK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"


class Variant(NamedTuple):
    tokenizer: dict           # the content of tokenizer.json
    lower_case: bool = False  # do_lower_case in sentence_bert_config.json


# --- Vocabularies -----------------------------------------------------------------------------------------------------

def every_character():
    """All assigned characters, and some that are not."""
    result = []
    for c in range(0x110000):
        category = unicodedata.category(chr(c))
        if category != "Cs" and (category not in ("Co", "Cn") or c % 64 == 0):
            result.append(chr(c))
    return result


def numbered(*lists):
    vocabulary = {}
    for tokens in lists:
        for token in tokens:
            vocabulary.setdefault(token, len(vocabulary))
    return vocabulary


def train(model, trainer, pre_tokenizer, texts, normalizer=None):
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(texts, trainer)
    return json.loads(tokenizer.to_str())["model"]


def word_piece(alphabet):
    return typed("WordPiece", unk_token="[UNK]", continuing_subword_prefix="##", max_input_chars_per_word=100,
                 vocab=numbered(SPECIALS, [x for c in alphabet for x in (c, "##" + c)], WORDS))


def extended(model, tokens, **options):
    """`model` with more tokens and other options. Its ids stay."""
    result = dict(model, **options)
    result["vocab"] = dict(model["vocab"])
    for token in tokens:
        result["vocab"].setdefault(token, len(result["vocab"]))
    return result


def trained_bpe(texts, pre_tokenizer, size, **options):
    flags = {key: options[key] for key in ("continuing_subword_prefix", "end_of_word_suffix", "initial_alphabet")
             if key in options}
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, special_tokens=SPECIALS, **flags)
    model = train(models.BPE(), trainer, pre_tokenizer, texts)
    for key in ("continuing_subword_prefix", "end_of_word_suffix"):
        if key in flags:
            model[key] = flags[key]
    return model


def byte_tokens(missing=()):
    return ["<0x%02X>" % byte for byte in range(256) if byte not in missing]


# --- Precompiled character maps ---------------------------------------------------------------------------------------

def charsmap(mapping):
    """The base64 text of a Precompiled normalizer: a double-array trie (darts-clone's layout) and the replacements."""
    blob = b""
    keys = {}
    for key, replacement in sorted(mapping.items()):
        keys[key.encode()] = len(blob)
        blob += replacement.encode() + b"\0"
    units = [0] * 256
    used = {0}

    def children(prefix):
        return sorted({key[len(prefix)] if len(key) > len(prefix) else 0 for key in keys if key.startswith(prefix)})

    def build(prefix, position, label):
        nonlocal units
        labels = children(prefix)
        base = 1
        while any((base ^ byte) in used or (base ^ byte) == 0 for byte in labels) or (base ^ position) >= 1 << 21:
            base += 1
        while len(units) <= max(base ^ byte for byte in labels):
            units += [0] * 256
        used.update(base ^ byte for byte in labels)
        units[position] = (base ^ position) << 10 | (0x100 if 0 in labels else 0) | label
        for byte in labels:
            if byte == 0:
                units[base] = 1 << 31 | keys[prefix]
            else:
                build(prefix + bytes([byte]), base ^ byte, byte)

    build(b"", 0, 0)
    return base64.b64encode(struct.pack("<I%dI" % len(units), 4 * len(units), *units) + blob).decode()


CHARSMAP = {
    "\t": " ", "\n": " ", "\r": "", "\u200b": " ", "\u200d": "", "\ufeff": "", "\u00a0": " ", "\u3000": " ", "\u2460": "1",
    "\u00bd": "1\u20442", "\ufb01": "fi", "\uff21": "A", "\u00aa": "a", "\ufdfa": "\u0635\u0644\u0649 \u0627\u0644\u0644\u0647",
    "e\u0301": "\u00e9", "e\u0301\u0302": "\u1ebf", "a\u0308": "\u00e4", "\u0915\u093c": "\u0958", "\u30ab\u3099": "\u30ac", "\u2126": "\u03a9",
    "\u0600": "[", "\u00a9": "(c)", "\u1100": "G", "\u1100\u1161": "\uac00", "x\u0323": "X", "x\u0323\u0307": "Y", "q": "Q", "\r\n": "\u2028",
    "\u0301": "", "\U0001d400": "A", "ab": "C", "z": " z ", "\u263a\ufe0f": ":)"}


# --- Components of tokenizer.json -------------------------------------------------------------------------------------

def typed(name, **options):
    return dict({"type": name}, **options)


def added(content, **flags):
    token = {"content": content, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": False}
    token.update(flags)
    return token


def specials(*names):
    return [added(name, special=True) for name in names or SPECIALS[:5]]


def bert(**options):
    return dict(typed("BertNormalizer", clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True),
                **options)


def normalize(*members):
    return typed("Sequence", normalizers=list(members))


def chain(*members):
    return typed("Sequence", pretokenizers=list(members))


def replace(pattern, content, kind="String"):
    return typed("Replace", pattern={kind: pattern}, content=content)


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return typed("Split", pattern={kind: pattern}, behavior=behavior, invert=invert)


def byte_level(add_prefix_space=False, use_regex=True, trim_offsets=True):
    return typed("ByteLevel", add_prefix_space=add_prefix_space, trim_offsets=trim_offsets, use_regex=use_regex)


def metaspace(prepend_scheme="always", split=True):
    return typed("Metaspace", replacement=FIRST_WORD, prepend_scheme=prepend_scheme, split=split)


def template(before, after, vocabulary):
    """`before` and `after`: names, or (name, several tokens)."""
    table = {}

    def special(entry):
        name, tokens = entry if isinstance(entry, tuple) else (entry, [entry])
        table[name] = {"id": name, "ids": [vocabulary[x] for x in tokens], "tokens": tokens}
        return {"SpecialToken": {"id": name, "type_id": 0}}
    text, second = ({"Sequence": {"id": name, "type_id": i}} for i, name in enumerate("AB"))
    single = [special(x) for x in before] + [text] + [special(x) for x in after]
    return typed("TemplateProcessing", single=single, pair=[text, second], special_tokens=table)


def roberta(vocabulary, **options):
    return dict(typed("RobertaProcessing", sep=["</s>", vocabulary["</s>"]], cls=["<s>", vocabulary["<s>"]],
                      trim_offsets=True, add_prefix_space=True), **options)


# --- The variants -----------------------------------------------------------------------------------------------------

def word_piece_variants(model):
    """name -> (added tokens, normalizer, pre-tokenizer, post-processor, lower case)"""
    vocabulary = model["vocab"]
    bert_post = typed("BertProcessing", sep=["[SEP]", vocabulary["[SEP]"]], cls=["[CLS]", vocabulary["[CLS]"]])
    bert_pre = typed("BertPreTokenizer")
    blanks = typed("WhitespaceSplit")
    table = {
        "uncased": (specials(), bert(), bert_pre, bert_post, False),
        "cased": (specials(), bert(lowercase=False), bert_pre, template(["[CLS]"], ["[SEP]", "[MASK]"], vocabulary), False),
        "cased_lowered": (specials(), bert(lowercase=False), bert_pre, bert_post, True),
        "accents_kept": (specials(), bert(strip_accents=False, clean_text=False), bert_pre, bert_post, False),
        "accents_stripped_cased": (specials(), bert(strip_accents=True, lowercase=False, handle_chinese_chars=False),
                                   bert_pre, None, False),
        "mpnet": ([added("<s>", special=True, normalized=True), added("[UNK]", special=True),
                   added("<unk>", special=True, normalized=True), added("<mask>", special=True, lstrip=True)],
                  bert(), bert_pre, roberta(vocabulary), False),
        "added": ([added("<mask>", lstrip=True, rstrip=True, single_word=True),
                   added("Yesterday", normalized=True, single_word=True), added("New York", normalized=True, rstrip=True),
                   added("New"), added("\u4e2d", normalized=True, lstrip=True), added("e\u0301", normalized=True),
                   added("FOO", normalized=True), added("  ")] + specials(), bert(), bert_pre, bert_post, False),
        "nfc": (specials(), typed("NFC"), typed("Whitespace"), None, False),
        "nfd": (specials(), typed("NFD"), blanks, None, False),
        "nfkc": ([added("foo", normalized=True)], typed("NFKC"), typed("Punctuation", behavior="MergedWithPrevious"),
                 None, False),
        "nfkd_strip": ([added("the ", normalized=True, lstrip=True)],
                       normalize(typed("NFKD"), typed("StripAccents"), typed("Lowercase"),
                                 typed("Strip", strip_left=True, strip_right=True)),
                       chain(blanks, typed("Punctuation", behavior="Contiguous")), roberta(vocabulary), False),
        "lower_nfd_strip": (specials(), normalize(typed("Lowercase"), typed("NFD"), typed("StripAccents")), bert_pre,
                            bert_post, False),
        "replace": (specials(), normalize(replace("a", "\u00e9e "), replace(" ", "_"), replace("e_", ""), typed("NFC"),
                                          typed("Strip", strip_left=False, strip_right=True)),
                    typed("Punctuation", behavior="MergedWithNext"), None, False),
        "bare": ([added(" ", rstrip=True), added("!", lstrip=True)], None, None, roberta(vocabulary), False),
        "punctuation_removed": (specials(), None, typed("Punctuation", behavior="Removed"), None, False),
        "punctuation_isolated": (specials(), typed("Nmt"), typed("Punctuation", behavior="Isolated"), bert_post, False),
        "digits": (specials(), None, typed("Digits", individual_digits=False), None, False),
        "digits_single": (specials(), typed("Strip", strip_left=True, strip_right=False),
                          typed("Digits", individual_digits=True), None, False),
        "replace_regex": ([added("foo", normalized=True), added("Yesterday ", normalized=True)],
                          normalize(replace(r"\s+", " ", "Regex"), replace(r"^ | $", "", "Regex"),
                                    replace(r"(?i:caf.)", "<\u00e9>", "Regex"), replace(r"\p{N}(?=\p{L})", "", "Regex")),
                          blanks, None, False),
        "replace_empty_match": (specials(), replace("x*", "-", "Regex"), blanks, None, False),
        "prepend": (specials(), normalize(typed("Prepend", prepend="a "), typed("Lowercase"),
                                          typed("Prepend", prepend="\u4e2d")), bert_pre, None, False),
        "byte_level_normalizer": (specials(), normalize(typed("NFC"), typed("ByteLevel")), None, None, False),
        "split_twice": (specials(), None, chain(split("[aeiou]+", "MergedWithNext"), split(r"\w\b|$", "Isolated"),
                                                typed("Digits", individual_digits=True)), None, False),
        "split_empty_match": (specials(), None, split("o*", "Isolated"), None, False),
        "split_new_line": (specials(), None, chain(blanks, split("e", "MergedWithPrevious", kind="String"),
                                                   split(".", kind="String"), split(DEEPSEEK)), None, False),
        "metaspace_pieces": (specials() + [added("<mask>", lstrip=True), added("foo")], replace("o", FIRST_WORD),
                             chain(metaspace("first"), typed("Punctuation", behavior="Isolated")), bert_post, False),
    }
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            name = "split_%s%s" % (behavior.lower(), "_inverted" if invert else "")
            table[name] = (specials(), None, split(r"\s|[.,!?]|th?", behavior, invert), None, False)
    return {name: entry[:4] + (model, entry[4]) for name, entry in table.items()}


def byte_level_variants(texts):
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    pre = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model = trained_bpe(texts, pre, 7 + 256 + 160, initial_alphabet=alphabet)
    vocabulary = model["vocab"]
    # With tokens that no merge leads to.
    whole = extended(model, ["\u0120the\u0120of", "\u0120yesterday", "123", "\u0120New\u0120York"], ignore_merges=True)
    suffix = trained_bpe([text.lower() for text in texts], pre, 7 + 512 + 160, initial_alphabet=alphabet,
                         end_of_word_suffix="</w>")
    suffix = extended(suffix, [c + end for c in sorted(alphabet) for end in ("", "</w>")], unk_token="</s>")
    old = {key: model[key] for key in ("dropout", "unk_token", "fuse_unk", "vocab")}
    old["merges"] = [" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"]]
    no_regex = byte_level(use_regex=False)
    byte_post = byte_level(trim_offsets=True)
    ends = template(["<s>"], ["</s>"], vocabulary)
    pieces = [("three", ["<s>", "[MASK]", "</s>"]), "<s>"]
    return {
        "bpe_byte": (specials("<s>"), None, byte_level(), byte_post, model, False),
        "bpe_byte_prefix": (specials("<s>") + [added("<mask>", lstrip=True)], None, byte_level(True),
                            typed("Sequence", processors=[byte_post, ends]), model, False),
        "bpe_byte_whole": (specials("<s>"), None, byte_level(True, use_regex=False, trim_offsets=False),
                           byte_level(trim_offsets=False), model, False),
        "bpe_byte_defaults": ([], None, typed("ByteLevel", add_prefix_space=True, trim_offsets=True), byte_post, model, False),
        "bpe_byte_roberta": ([added("<s>", special=True, normalized=True), added("<mask>", special=True, lstrip=True)],
                             None, byte_level(), roberta(vocabulary, add_prefix_space=False), model, False),
        "bpe_byte_roberta_raw": ([added("<s>", special=True, normalized=True)], typed("NFKC"), byte_level(True),
                                 roberta(vocabulary, trim_offsets=False), model, False),
        "bpe_byte_old": (specials("</s>"), typed("NFC"), byte_level(), template(["<s>"], pieces, vocabulary), old, False),
        "bpe_llama3": (specials("<s>", "</s>"), None, chain(split(LLAMA3), no_regex),
                       typed("Sequence", processors=[byte_post, template(["<s>"], [], vocabulary)]), whole, False),
        "bpe_qwen2": (specials("</s>"), typed("NFC"), chain(split(QWEN2), no_regex), template([], ["</s>"], vocabulary),
                      model, False),
        "bpe_o200k": (specials("</s>"), None, chain(split(O200K), no_regex), None, model, False),
        "bpe_digits": (specials("<s>"), None, chain(typed("Digits", individual_digits=True), byte_level()), None, model,
                       False),
        "bpe_falcon": (specials("<s>"), None,
                       chain(typed("Punctuation", behavior="Contiguous"), byte_level(),
                             typed("Digits", individual_digits=False), split("[0-9][0-9][0-9]")), None, model, False),
        "bpe_clip": ([added("<s>", special=True, normalized=True), added("</s>", special=True)],
                     normalize(typed("NFC"), replace(r"\s+", " ", "Regex"), typed("Lowercase")),
                     chain(split(CLIP, "Removed", True), byte_level()), roberta(vocabulary, trim_offsets=False), suffix,
                     False),
    }


def character_bpe_variants(texts):
    model = trained_bpe(texts, pre_tokenizers.Whitespace(), 200)
    prefix = trained_bpe(texts, pre_tokenizers.Whitespace(), 260, continuing_subword_prefix="##")
    spaced = trained_bpe([FIRST_WORD + text.replace(" ", FIRST_WORD) for text in texts], pre_tokenizers.Whitespace(), 200)
    # Runs of blanks merge, as in Llama 2, and every byte has a token.
    blanks = [[FIRST_WORD, FIRST_WORD], [FIRST_WORD * 2, FIRST_WORD * 2]]
    fallback = dict(extended(spaced, byte_tokens() + [FIRST_WORD, FIRST_WORD * 2, FIRST_WORD * 4], unk_token="[UNK]",
                             fuse_unk=True, byte_fallback=True), merges=spaced["merges"] + blanks)
    partial = extended(spaced, byte_tokens(missing=(0x80, 0x81, 0xA0, 0xCC, 0xF0)), unk_token="[UNK]", byte_fallback=True)
    vocabulary = fallback["vocab"]
    white = typed("Whitespace")
    llama = normalize(typed("Prepend", prepend=FIRST_WORD), replace(" ", FIRST_WORD))
    start = template(["<s>"], [], vocabulary)
    return {
        "bpe_unknown": (specials(), None, white, None, dict(model, unk_token="[UNK]"), False),
        "bpe_unknown_fused": (specials(), None, white, None, dict(model, unk_token="[UNK]", fuse_unk=True), False),
        "bpe_no_unknown": (specials(), None, white, None, dict(model, unk_token=None), False),
        "bpe_no_pre_tokenizer": (specials(), typed("Lowercase"), None, None,
                                 dict(model, unk_token="[UNK]", fuse_unk=True), False),
        "bpe_prefix": (specials(), typed("NFC"), white, None, dict(prefix, unk_token="[UNK]"), False),
        "bpe_ignore_merges": (specials(), None, white, None,
                              extended(model, ["Yesterday", "caf\u00e9", "x"], unk_token="[UNK]", ignore_merges=True), False),
        "bpe_llama2": (specials("[UNK]", "<s>", "</s>") + [added("<mask>", lstrip=True)], llama, None, start, fallback,
                       False),
        "bpe_llama2_normalized": ([added("<s>", normalized=True, special=True), added("foo", normalized=True),
                                   added("a b", normalized=True), added("[MASK]", rstrip=True)], llama, None, start,
                                  fallback, False),
        "bpe_mistral": (specials("[UNK]", "<s>", "</s>"), None, metaspace("first", False), start, fallback, False),
        "bpe_gemma": (specials("[UNK]", "<s>", "</s>"), replace(" ", FIRST_WORD), split(" ", "MergedWithPrevious", False, "String"),
                      template(["<s>"], ["</s>"], vocabulary), fallback, False),
        "bpe_bytes_missing": (specials("[UNK]"), llama, None, None, partial, False),
        "bpe_bytes_missing_fused": (specials("[UNK]"), llama, None, None, dict(partial, fuse_unk=True), False),
        "bpe_bytes_no_unknown": (specials("<s>"), llama, None, None, dict(partial, unk_token=None), False),
    }


def unigram_variants(texts):
    pre = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=260, show_progress=False, special_tokens=SPECIALS, unk_token="[UNK]")
    model = train(models.Unigram(), trainer, pre, texts, normalizers.NFKC())
    known = {piece for piece, _ in model["vocab"]}
    more = [[piece, score] for piece, score in (("\u00e9", -9.5), ("\u4e2d", -8.25), ("  ", -3.0), (FIRST_WORD * 2, -4.0),
                                                ("ab", -4.0), ("ba", -4.0)) if piece not in known]
    model = dict(model, vocab=model["vocab"] + more)
    with_bytes = dict(model, byte_fallback=True, vocab=model["vocab"] + [[x, 0.0] for x in byte_tokens()])
    some_bytes = dict(model, byte_fallback=True,
                      vocab=model["vocab"] + [[x, -20.0] for x in byte_tokens(missing=(0x80, 0xCC))])
    old = {"unk_id": model["unk_id"], "vocab": model["vocab"]}
    vocabulary = {piece: i for i, (piece, _) in enumerate(model["vocab"])}
    precompiled = typed("Precompiled", precompiled_charsmap=charsmap(CHARSMAP))
    ends = template(["<s>"], ["</s>"], vocabulary)
    blanks = typed("WhitespaceSplit")
    mask = [added("<mask>", special=True, lstrip=True)]
    old_metaspace = typed("Metaspace", replacement=FIRST_WORD, str_rep=FIRST_WORD, add_prefix_space=True)
    return {
        "unigram_xlmr": (specials("<s>", "</s>") + mask, precompiled, chain(blanks, metaspace()), ends, model, False),
        "unigram_t5": (specials("</s>") + [added("foo")], precompiled, chain(blanks, old_metaspace),
                       template([], ["</s>"], vocabulary), old, False),
        "unigram_nmt": (specials("</s>"), normalize(precompiled, typed("Strip", strip_left=False, strip_right=True),
                                                    replace(" {2,}", FIRST_WORD, "Regex")), metaspace(), None, model, False),
        "unigram_nmt_nfkc": (specials("</s>"), normalize(typed("Nmt"), typed("NFKC"), replace(r" {2,}", " ", "Regex")),
                             metaspace("always", False), ends, model, False),
        "unigram_first": (mask + [added("foo", normalized=True), added("\u4e2d", rstrip=True)], None, metaspace("first"),
                          None, model, False),
        "unigram_first_whole": (mask + [added("foo")], typed("Lowercase"), metaspace("first", False), None, model, False),
        "unigram_never": (mask + [added("a b", normalized=True)], typed("NFC"), metaspace("never"), None, model, False),
        "unigram_never_old": (mask, None, dict(old_metaspace, add_prefix_space=False, prepend_scheme="never"), None, model, False),
        "unigram_bytes": (mask, precompiled, metaspace(), ends, with_bytes, False),
        "unigram_some_bytes": (mask, None, metaspace("always", False), None, some_bytes, False),
        "unigram_bare": ([added("foo", single_word=True)], None, None, None, model, False),
        "unigram_no_unknown": (mask, None, metaspace(), None, dict(model, unk_id=None), False),
    }


def word_level_variants(texts):
    words = [word for text in texts[:120] for word in text.split()]
    vocabulary = numbered(SPECIALS, words, ["Yesterday", "foo", "caf\u00e9", "\u4e2d\u6587"])
    model = typed("WordLevel", vocab=vocabulary, unk_token="[UNK]")
    return {
        "word_level": (specials(), None, typed("Whitespace"), template(["[CLS]"], ["[SEP]"], vocabulary), model, False),
        "word_level_renumbered": (specials() + [added("<x>"), added("a b"), added("of")], None, typed("WhitespaceSplit"),
                                  template(["[CLS]"], [], vocabulary), model, False),
        "word_level_lower": (specials(), normalize(typed("NFC"), typed("Lowercase")), typed("WhitespaceSplit"), None, model,
                             False),
        "word_level_no_unknown": (specials("[PAD]"), None, typed("WhitespaceSplit"), None,
                                  dict(model, unk_token="[NONE]"), False),
    }


def variants(alphabet, texts):
    table = word_piece_variants(word_piece(alphabet))
    table.update(byte_level_variants(texts))
    table.update(character_bpe_variants(texts))
    table.update(unigram_variants(texts))
    table.update(word_level_variants(texts))
    result = {}
    for name, (tokens, normalizer, pre_tokenizer, post_processor, model, lower_case) in table.items():
        pieces = model["vocab"]
        ids = pieces if isinstance(pieces, dict) else {piece: i for i, (piece, _) in enumerate(pieces)}
        free = len(ids)
        for token in tokens:  # as the package numbers them
            token["id"] = ids.get(token["content"], free)
            free = max(free, token["id"] + 1)
            if name.endswith("_renumbered"):  # a file's own ids do not count
                token["id"] += 3
        result[name] = Variant({"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens,
                                "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
                                "post_processor": post_processor, "decoder": None, "model": model}, lower_case)
    return result


def write_variants(folder, alphabet, texts):
    """The directories written, one for each variant."""
    folders = []
    for name, variant in variants(alphabet, texts).items():
        path = os.path.join(folder, name)
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, "tokenizer.json"), "w", encoding="utf-8") as file:
            json.dump(variant.tokenizer, file)
        if variant.lower_case:
            with open(os.path.join(path, "sentence_bert_config.json"), "w") as file:
                json.dump({"max_seq_length": None, "do_lower_case": True}, file)
        folders.append(path)
    return folders
