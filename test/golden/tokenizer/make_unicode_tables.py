"""Writes the generated sources of lib/tokenizer: the sets of code points that the `tokenizers` package acts on.

The package mixes tables of several Unicode versions (categories of Unicode 8, canonical classes of Unicode 9, word
characters and lower case of Unicode 16 or newer, Oniguruma's own for Split), so its sets are measured from its
behaviour, one code point at a time, instead of being derived from one Unicode version. Canonical classes and
decompositions come from libutf8proc at run time; the two tables `kClassZero` and `kNotDecomposed` list where the package
disagrees with utf8proc 2.8 (Unicode 15). DUMP below prints what utf8proc says.

Grapheme clusters are seen through the Precompiled normalizer: it looks a cluster of less than 6 bytes up whole, and takes
the first hit of the look-up. A charsmap that maps every single character to "!" therefore answers one "!" for such a
cluster and one for each character of a longer one. With a mark of two bytes behind them, characters that join show as a
longer cluster, those that do not show a short one.

Usage: python make_unicode_tables.py DIRECTORY     (needs tokenizers, gcc, clang-format, libutf8proc-dev,
    libonig-dev; made with tokenizers 0.23.3)
"""
import os
import struct
import subprocess
import sys
import tempfile

from tokenizers import Regex, __version__, normalizers as N, pre_tokenizers as P

# Properties that libonig is taught (it takes at most 20). Mn and Mc, which lost members too, are left as they are.
PROPERTIES = ["L", "Lu", "Ll", "Lm", "Lo", "M", "N", "Nd", "No", "P", "Po", "S", "Sm", "So", "Han"]
DUMP_ONIGURUMA = r"""
#include <stdio.h>
#include <string.h>
#include <oniguruma.h>
int main(int argc, char** argv) {
  OnigEncoding utf8 = ONIG_ENCODING_UTF8;
  onig_initialize(&utf8, 1);
  for (int i = 1; i < argc; i++) {
    regex_t* regex;
    OnigErrorInfo info;
    const UChar* pattern = (const UChar*)argv[i];
    if (onig_new(&regex, pattern, pattern + strlen(argv[i]), 0, utf8, ONIG_SYNTAX_ONIGURUMA, &info)) return 1;
    for (int c = 0; c < 0x110000; c++) {
      UChar text[8];
      if (c >= 0xd800 && c < 0xe000) continue;
      int n = ONIGENC_CODE_TO_MBC(utf8, c, text);
      if (onig_match(regex, text, text + n, text, NULL, 0) == n) printf("%d ", c);
    }
    puts("");
  }
}
"""
DUMP = r"""
#include <stdio.h>
#include <utf8proc.h>
int main(void) {
  for (int c = 0; c < 0x110000; c++) {
    if (c >= 0xd800 && c < 0xe000) continue;
    utf8proc_int32_t d[32], k[32];
    int n = utf8proc_decompose_char(c, d, 32, UTF8PROC_DECOMPOSE, NULL);
    int m = utf8proc_decompose_char(c, k, 32, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, NULL);
    printf("%d %d %d", c, utf8proc_get_property(c)->combining_class, utf8proc_tolower(c));
    for (int i = 0; i < n; i++) printf(" %d", d[i]);
    printf(" |");
    for (int i = 0; i < m; i++) printf(" %d", k[i]);
    puts("");
  }
}
"""


def run_c(source, library, *arguments):
    """The lines that a C program prints."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "dump.c")
        open(path, "w").write(source)
        program = os.path.join(folder, "dump")
        subprocess.run(["gcc", path, "-l" + library, "-o", program], check=True)
        return subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout.splitlines()


def dump_utf8proc():
    lines = run_c(DUMP, "utf8proc")
    table = {}
    for line in lines:
        left, right = line.split("|")
        numbers = [int(x) for x in left.split()]
        table[numbers[0]] = (numbers[1], chr(numbers[2]), "".join(map(chr, numbers[3:])),
                             "".join(chr(int(x)) for x in right.split()))
    return table


def ranges(code_points):
    out = []
    for c in sorted(code_points):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def every_character_to_one():
    """A Precompiled normalizer whose charsmap maps every single character but U+0000 to "!"."""
    lead, last, last_two, last_three, end = (256 * block for block in range(1, 6))
    units = [0] * (256 * 6)

    def put(position, label, target):  # a unit leads to the block of its children
        units[position] = (position ^ target) << 10 | (0x100 if target == end else 0) | label

    put(0, 0, lead)
    for first, stop, target in ((0x01, 0x80, end), (0xC2, 0xE0, last), (0xE0, 0xF0, last_two), (0xF0, 0xF5, last_three)):
        for byte in range(first, stop):
            put(lead + byte, byte, target)
    for block, target in ((last, end), (last_two, last), (last_three, last_two)):
        for byte in range(0x80, 0xC0):
            put(block + byte, byte, target)
    units[end] = 1 << 31
    return N.Precompiled(struct.pack("<I%dI" % len(units), 4 * len(units), *units) + b"!\0")


GRAPHEME_BITS = ["Control", "Joins", "Prepend", "Transparent", "Pictographic", "HangulL", "HangulV", "HangulT",
                 "HangulLV", "HangulLVT", "IndicConsonant", "IndicLinker", "IndicExtend"]


def measure_graphemes():
    """code point -> the set of its names in GRAPHEME_BITS, where there are any"""
    one = every_character_to_one()

    def looked_up(*parts):
        return len(one.normalize_str("".join(parts)))

    mark, zwj, smile, ka, virama = "\u0301", "\u200d", "\u263a", "\u0915", "\u094d"
    result = {}
    for c in range(1, 0x110000):
        if 0xD800 <= c < 0xE000:
            continue
        s = chr(c)
        names = set()
        if looked_up(s, mark, "\u0302") == 2:
            names.add("Control")
        if looked_up("x", s) == 1:
            names.add("Joins")
            if looked_up(smile, s, zwj, smile, mark) == 5:
                names.add("Transparent")
            if looked_up(ka, s, ka, mark) == 4:
                names.add("IndicLinker")
            if looked_up(ka, virama, s, ka, mark) == 5:
                names.add("IndicExtend")
        elif looked_up(s, "x") == 1:
            names.add("Prepend")
        else:
            if looked_up("\u00a9", zwj, s) == 3:
                names.add("Pictographic")
            if looked_up(s, virama, ka, mark) == 4:
                names.add("IndicConsonant")
            joins_l, joins_v, joins_t = (looked_up(s, x, mark) == 3 for x in ("\u1100", "\u1161", "\u11a8"))
            if joins_l:
                names.add("HangulL")
            elif joins_v:
                names.add("HangulV" if looked_up("\u1161", s, mark) == 3 else "HangulLV")
            elif joins_t:
                names.add("HangulT" if looked_up("\u11a8", s, mark) == 3 else "HangulLVT")
        if names:
            result[c] = names
    return result


def measure(peer):
    clean = N.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    strip = N.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
    chinese = N.BertNormalizer(clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False)
    nfd, nfkd, marks, lower = N.NFD(), N.NFKD(), N.StripAccents(), N.Lowercase()
    punctuation, space, word = P.Punctuation("isolated"), P.WhitespaceSplit(), P.Whitespace()
    letter, number, blank, regex_word = (P.Split(Regex(x), "removed") for x in (r"\p{L}", r"\p{N}", r"\s", r"\w"))
    digits = P.Digits(individual_digits=True)
    sets = {name: set() for name in ("Removed", "Punctuation", "NonspacingMark", "CombiningMark", "Word", "Space",
                                     "Chinese", "ClassZero", "NotDecomposed", "Letter", "Number", "Numeric",
                                     "RegexSpace", "RegexWord")}
    lowered = {}
    for c, (combining, simple_lower, canonical, compatible) in peer.items():
        s = chr(c)
        around = "a" + s + "b"
        if clean.normalize_str(s) == "":
            sets["Removed"].add(c)
        if strip.normalize_str(s) == "":
            sets["NonspacingMark"].add(c)
        if chinese.normalize_str(s) == " " + s + " ":
            sets["Chinese"].add(c)
        if marks.normalize_str(s) == "":
            sets["CombiningMark"].add(c)
        if len(punctuation.pre_tokenize_str(around)) == 3:
            sets["Punctuation"].add(c)
        if len(space.pre_tokenize_str(around)) == 2:
            sets["Space"].add(c)
        if len(word.pre_tokenize_str(around)) == 1:
            sets["Word"].add(c)
        if not letter.pre_tokenize_str(s):
            sets["Letter"].add(c)
        if not number.pre_tokenize_str(s):
            sets["Number"].add(c)
        if not blank.pre_tokenize_str(s):
            sets["RegexSpace"].add(c)
        if not regex_word.pre_tokenize_str(s):
            sets["RegexWord"].add(c)
        if len(digits.pre_tokenize_str(around)) == 3:
            sets["Numeric"].add(c)
        own_canonical, own_compatible = nfd.normalize_str(s), nfkd.normalize_str(s)
        if own_canonical != canonical or own_compatible != compatible:
            # The only disagreement: utf8proc decomposes what was assigned after the package's tables.
            assert own_compatible == s and own_canonical == s, hex(c)
            sets["NotDecomposed"].add(c)
        if combining != 0 and own_canonical == s:
            probe = "x" + s + "\u0334" if combining != 1 else "x\u0345" + s
            if nfd.normalize_str(probe) == probe:
                sets["ClassZero"].add(c)
        if lower.normalize_str(s) != simple_lower:
            lowered[c] = lower.normalize_str(s)
    # A nonspacing mark that decomposes is removed through its parts.
    sets["NonspacingMark"] = {c for c in sets["NonspacingMark"] if nfd.normalize_str(chr(c)) == chr(c)}
    # Sets that nearly equal another one are written as the difference.
    assert sets.pop("RegexSpace") == sets["Space"]
    sets["WordDifference"] = sets.pop("RegexWord") ^ sets["Word"]
    sets["NumericDifference"] = sets.pop("Numeric") ^ sets["Number"]
    return sets, lowered


HEADER = ["// Generated by test/golden/tokenizer/make_unicode_tables.py from the behaviour of tokenizers %s;" % __version__,
          "// do not edit."]


def filled(items):
    """Lines of at most 118 columns."""
    lines = ["   "]
    for item in items:
        if len(lines[-1]) + 1 + len(item) > 118:
            lines.append("   ")
        lines[-1] += " " + item
    return lines


def write(path, lines):
    open(path, "w").write("\n".join(lines))
    subprocess.run(["clang-format", "-i", path], check=True)


def write_graphemes(folder):
    bits = {c: sum(1 << GRAPHEME_BITS.index(name) for name in names) for c, names in measure_graphemes().items()}
    out = []
    for c, value in sorted(bits.items()):
        if out and out[-1][1] == c - 1 and out[-1][2] == value:
            out[-1][1] = c
        else:
            out.append([c, c, value])
    write(os.path.join(folder, "grapheme_tables.cpp"), HEADER + [
        '#include "tokenizer/grapheme_tables.h"', "", "namespace stft::tokenizer {", "namespace {", "",
        "// Each value is made of the bits of GraphemeProperty.", "constexpr GraphemeRange kRanges[] = {"] +
        filled("{0x%X, 0x%X, 0x%X}," % tuple(x) for x in out) +
        ["};", "", "}  // namespace", "", "std::span<const GraphemeRange> grapheme_ranges() { return kRanges; }", "",
         "}  // namespace stft::tokenizer", ""])


def write_regex_properties(folder):
    """What the properties of the package's Oniguruma hold beyond those of the libonig installed here."""
    patterns = [r"\p{%s}" % name for name in PROPERTIES] + [r"\w"]
    out = HEADER + ['#include "tokenizer/regex_property_tables.h"', "", "namespace stft::tokenizer {", "namespace {", ""]
    names = PROPERTIES + ["Word"]
    for name, pattern, line in zip(names, patterns, run_c(DUMP_ONIGURUMA, "onig", *patterns)):
        installed = {int(c) for c in line.split()}
        split = P.Split(Regex(pattern), "removed")
        own = {c for c in range(0x110000) if not 0xD800 <= c < 0xE000 and not split.pre_tokenize_str(chr(c))}
        assert installed <= own, name  # so that any libonig in between becomes the package's too
        assert own - installed, name
        out.append("constexpr CodePointRange k%s[] = {" % name)
        out += filled("{0x%X, 0x%X}," % pair for pair in map(tuple, ranges(own - installed))) + ["};", ""]
    out.append("constexpr RegexProperty kProperties[] = {")
    out += filled('{"%s", k%s},' % (name, name) for name in PROPERTIES)
    out += ["};", "", "}  // namespace", "", "std::span<const RegexProperty> added_to_properties() { return kProperties; }",
            "std::span<const CodePointRange> added_to_word() { return kWord; }", "", "}  // namespace stft::tokenizer", ""]
    write(os.path.join(folder, "regex_property_tables.cpp"), out)


def write_sets(folder):
    sets, lowered = measure(dump_utf8proc())
    out = HEADER + ['#include "tokenizer/unicode_tables.h"', "", "namespace stft::tokenizer {", "namespace {", ""]
    for name, members in sets.items():
        out.append("constexpr CodePointRange k%s[] = {" % name)
        out += filled("{0x%X, 0x%X}," % pair for pair in map(tuple, ranges(members))) + ["};", ""]
    assert all(len(text) <= 2 for text in lowered.values())
    out.append("constexpr LowercaseException kLowercaseExceptions[] = {")
    out += filled("{0x%X, 0x%X, 0x%X}," % tuple(([c] + [ord(x) for x in text] + [0])[:3])
                  for c, text in sorted(lowered.items())) + ["};", "", "}  // namespace", ""]
    functions = {"Removed": "removed_by_cleaning", "Punctuation": "punctuation", "NonspacingMark": "nonspacing_marks",
                 "CombiningMark": "combining_marks", "Word": "word_characters", "Space": "white_space",
                 "Chinese": "chinese_characters", "ClassZero": "combining_class_zero", "NotDecomposed": "not_decomposed",
                 "Letter": "letters", "Number": "numbers", "WordDifference": "word_difference",
                 "NumericDifference": "numeric_difference"}
    for name, function in functions.items():
        out.append("std::span<const CodePointRange> %s() { return k%s; }" % (function, name))
    out += ["std::span<const LowercaseException> lowercase_exceptions() { return kLowercaseExceptions; }", "",
            "}  // namespace stft::tokenizer", ""]
    write(os.path.join(folder, "unicode_tables.cpp"), out)


def main():
    write_sets(sys.argv[1])
    write_graphemes(sys.argv[1])
    write_regex_properties(sys.argv[1])


if __name__ == "__main__":
    main()
