"""Writes every_dtype.safetensors with Python's safetensors: one tensor or more of each dtype that torch can save.

Made with safetensors 0.8.0 and torch 2.15.0. Run in this directory; test/io/safetensors_test.cpp writes the same
tensors (their bytes count up from 0) and compares the files byte for byte.
"""

import torch
from safetensors.torch import save_file


def counting(dtype, shape):
    count = 1
    for dim in shape:
        count *= dim
    size = torch.empty(0, dtype=dtype).element_size()
    raw = (torch.arange(count * size) % (2 if dtype == torch.bool else 251)).to(torch.uint8)
    return raw.view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)


TENSORS = {
    "layer.1.weight": (torch.float32, [2, 3]),
    "layer.0.weight": (torch.float32, [4]),
    "Layer.0.weight": (torch.float32, [1]),
    "scalar": (torch.float32, []),
    "empty": (torch.float32, [0, 3]),
    "half": (torch.float16, [3]),
    "bfloat": (torch.bfloat16, [2, 1]),
    "double": (torch.float64, [2]),
    "complex": (torch.complex64, [1]),
    "long": (torch.int64, [2]),
    "ulong": (torch.uint64, [1]),
    "int": (torch.int32, [1]),
    "uint": (torch.uint32, [1]),
    "short": (torch.int16, [1]),
    "ushort": (torch.uint16, [1]),
    "byte": (torch.uint8, [5]),
    "char": (torch.int8, [1]),
    "flag": (torch.bool, [3]),
    "f8_e5m2": (torch.float8_e5m2, [2]),
    "f8_e4m3": (torch.float8_e4m3fn, [2]),
    "f8_e8m0": (torch.float8_e8m0fnu, [2]),
    "f8_e4m3fnuz": (torch.float8_e4m3fnuz, [2]),
    "f8_e5m2fnuz": (torch.float8_e5m2fnuz, [2]),
    'odd "name"\\\n\x01\x7f/\u00e9': (torch.uint8, [1]),
}

save_file(
    {name: counting(dtype, shape) for name, (dtype, shape) in TENSORS.items()},
    "every_dtype.safetensors",
    metadata={"format": "pt"},
)
