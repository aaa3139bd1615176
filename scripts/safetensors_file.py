"""Files in the safetensors format, with the standard library alone."""
import json
import struct


def write(path, dtype, tensors):
    """`tensors`: name -> (shape, bytes in `dtype`), as in safetensors' headers ("F32", "BF16")."""
    header, begin = {"__metadata__": {"format": "pt"}}, 0
    for name in sorted(tensors):
        shape, content = tensors[name]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, begin + len(content)]}
        begin += len(content)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(tensors):
            out.write(tensors[name][1])
