#!/usr/bin/env python3
"""Writes the LoRA adapter from which both programs of run.py start: rank 16 on every linear of the encoder's layers.

usage: make_adapter.py MODEL OUT
"""
import sys

import peft
import torch
from transformers import AutoModel

model, out = sys.argv[1:]
torch.manual_seed(0)
config = peft.LoraConfig(r=16, lora_alpha=32, target_modules=r".*layer.*\.(query|key|value|dense)")
peft.get_peft_model(AutoModel.from_pretrained(model), config).save_pretrained(out)
