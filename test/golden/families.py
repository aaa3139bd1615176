"""The tiny configurations of make_families.py: of each family what its cases share, and in what they differ."""
import torch
import transformers

LENGTHS = [1, 5, 9, 9, 17, 3]

DECODER = {
    "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "attention_dropout": 0.0,
}

ENCODER = {
    "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 32, "type_vocab_size": 2, "layer_norm_eps": 1e-6, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0, "hidden_act": "gelu",
}

LONGROPE = {"rope_type": "longrope", "original_max_position_embeddings": 8, "short_factor": [1.0, 1.1, 1.2, 1.3, 1.5, 2.0],
            "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 8.0]}

FAMILIES = {
    "albert": {
        "config": {**ENCODER, "model_type": "albert", "embedding_size": 8, "num_hidden_layers": 4},
        "cases": [
            {"name": "two_groups", "config": {"num_hidden_groups": 2}},
            {"name": "one_group"},
        ],
    },
    "bert": {
        "config": {**ENCODER, "model_type": "bert"},
        "cases": [
            {"name": "gelu"},
            {"name": "gelu_new", "gradients": False, "config": {"hidden_act": "gelu_new"}},
            {"name": "relu", "gradients": False, "config": {"hidden_act": "relu"}},
            {"name": "silu", "gradients": False, "config": {"hidden_act": "silu"}},
        ],
    },
    "camembert": {
        "config": {**ENCODER, "model_type": "camembert", "pad_token_id": 1, "type_vocab_size": 1},
        "cases": [{"name": "plain"}],
    },
    "deberta": {
        "config": {**ENCODER, "model_type": "deberta-v2", "type_vocab_size": 0, "relative_attention": True,
                   "position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": True,
                   "pos_att_type": "p2c|c2p", "position_biased_input": False, "max_position_embeddings": 64},
        "lengths": [1, 5, 9, 9, 40, 3],
        "cases": [{"name": "v3"}],
    },
    "deberta_own": {
        "config": {**ENCODER, "model_type": "deberta-v2", "relative_attention": True, "max_relative_positions": 12,
                   "pos_att_type": ["c2p", "p2c"], "embedding_size": 8},
        "cases": [{"name": "own_projections"}, {"name": "c2p", "config": {"pos_att_type": ["c2p"]}}],
    },
    "deberta_plain": {
        "config": {**ENCODER, "model_type": "deberta-v2"},
        "cases": [{"name": "without_relative_positions"}],
    },
    "distilbert": {
        "config": {"model_type": "distilbert", "vocab_size": 40, "dim": 16, "hidden_dim": 24, "n_layers": 2,
                   "n_heads": 4, "max_position_embeddings": 32, "dropout": 0.0, "attention_dropout": 0.0},
        "cases": [{"name": "plain"}],
    },
    "electra": {
        "config": {**ENCODER, "model_type": "electra", "embedding_size": 8},
        "cases": [{"name": "projected"}],
    },
    "electra_wide": {
        "config": {**ENCODER, "model_type": "electra", "embedding_size": 16},
        "cases": [{"name": "plain"}],
    },
    "gte": {
        "config": {**ENCODER, "model_type": "gte", "type_vocab_size": 1, "pad_token_id": 1},
        "cases": [{"name": "plain"}, {"name": "no_token_types", "gradients": False, "config": {"type_vocab_size": 0}}],
    },
    "modernbert": {
        "config": {"model_type": "modernbert", "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24,
                   "num_hidden_layers": 3, "num_attention_heads": 2, "max_position_embeddings": 64,
                   "local_attention": 6, "global_attn_every_n_layers": 2, "pad_token_id": 0, "norm_eps": 1e-5,
                   "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2},
        "cases": [
            {"name": "plain"},
            {"name": "thetas", "gradients": False, "config": {"global_rope_theta": 50.0, "local_rope_theta": 20.0}},
            {"name": "rope_parameters", "gradients": False, "config": {
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0},
                                    "sliding_attention": {"rope_type": "default", "rope_theta": 30.0}}}},
        ],
    },
    "modernbert_bias": {
        "config": {"model_type": "modernbert", "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24,
                   "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64, "norm_bias": True,
                   "attention_bias": True, "mlp_bias": True, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
                   "cls_token_id": 1, "sep_token_id": 2},
        "cases": [{"name": "plain"}],
    },
    "mpnet": {
        "config": {key: value for key, value in {**ENCODER, "model_type": "mpnet", "pad_token_id": 1,
                                                 "max_position_embeddings": 160}.items() if key != "type_vocab_size"},
        "lengths": [1, 5, 9, 9, 150, 3],
        "texts": [[7, 1, 8, 9]],
        "cases": [{"name": "plain"}],
    },
    "nomic_bert": {
        "config": {**ENCODER, "model_type": "nomic_bert", "hidden_act": "silu"},
        "cases": [
            {"name": "plain"},
            {"name": "theta", "gradients": False,
             "config": {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}}},
        ],
    },
    "roberta": {
        "config": {**ENCODER, "model_type": "roberta", "pad_token_id": 1},
        # Where the padding token is a text's own, it has the padding's position and no gradient.
        "texts": [[7, 1, 8, 9], [1]],
        "cases": [{"name": "plain"}],
    },
    "t5": {
        "config": {"model_type": "t5", "vocab_size": 40, "d_model": 16, "d_ff": 24, "d_kv": 6, "num_layers": 2,
                   "num_heads": 4, "dropout_rate": 0.0, "feed_forward_proj": "gated-gelu",
                   "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20},
        "lengths": [1, 5, 9, 9, 40, 3],
        "cases": [{"name": "gated"}],
    },
    "t5_relu": {
        "config": {"model_type": "t5", "vocab_size": 40, "d_model": 16, "d_ff": 24, "d_kv": 4, "num_layers": 2,
                   "num_heads": 4, "dropout_rate": 0.0, "feed_forward_proj": "relu"},
        "lengths": [1, 5, 9, 140, 3],
        "cases": [{"name": "plain"}],
    },
    "xlm_roberta": {
        "config": {**ENCODER, "model_type": "xlm-roberta", "pad_token_id": 3, "layer_norm_eps": 1e-5},
        "texts": [[7, 3, 8, 9]],
        "cases": [{"name": "plain"}],
    },
    "gemma2": {
        "config": {**DECODER, "model_type": "gemma2", "head_dim": 8, "query_pre_attn_scalar": 10,
                   "attn_logit_softcapping": 2.0, "sliding_window": 4},
        "cases": [
            {"name": "plain"},
            {"name": "no_cap", "gradients": False, "config": {"attn_logit_softcapping": None}},
            {"name": "bidirectional", "config": {"is_causal": False}},
        ],
    },
    "gemma3": {
        "config": {**{k: v for k, v in DECODER.items() if k != "rope_theta"}, "model_type": "gemma3_text",
                   "head_dim": 8, "query_pre_attn_scalar": 10, "sliding_window": 5, "sliding_window_pattern": 2},
        "cases": [
            {"name": "causal"},
            {"name": "embedding", "config": {"use_bidirectional_attention": True}},
            {"name": "bidirectional", "gradients": False, "config": {"is_causal": False}},
            {"name": "ropes", "gradients": False, "config": {
                "use_bidirectional_attention": True, "rope_theta": 50.0, "rope_local_base_freq": 20.0,
                "rope_scaling": {"rope_type": "linear", "factor": 4.0},
                "layer_types": ["full_attention", "sliding_attention"]}},
            {"name": "rope_parameters", "gradients": False, "config": {
                "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0},
                                    "sliding_attention": {"rope_type": "default", "rope_theta": 30.0}}}},
        ],
    },
    "llama": {
        "config": {**DECODER, "model_type": "llama", "head_dim": 12, "pad_token_id": 2},
        "texts": [[7, 2, 8, 2]],
        "cases": [
            {"name": "causal"},
            {"name": "bidirectional", "config": {"is_causal": False}},
            {"name": "linear", "gradients": False, "config": {"rope_scaling": {"type": "linear", "factor": 4.0}}},
            # The same as no scaling for texts that are not longer than max_position_embeddings.
            {"name": "dynamic", "gradients": False, "same_as_first": True,
             "config": {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}},
            {"name": "yarn", "gradients": False, "config": {"rope_scaling": {
                "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 8.0}}},
            {"name": "yarn_mscale", "gradients": False, "config": {"rope_scaling": {
                "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 0.7,
                "mscale_all_dim": 0.9, "truncate": False}}},
            {"name": "llama3", "gradients": False, "config": {"rope_scaling": {
                "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16}}},
            {"name": "longrope", "gradients": False, "config": {"rope_scaling": LONGROPE}, "depends_on_mates": True},
            {"name": "longrope_factor", "gradients": False, "config": {"rope_scaling": {**LONGROPE, "attention_factor": 1.25}},
             "depends_on_mates": True},
        ],
    },
    "llama_bias": {
        "config": {**DECODER, "model_type": "llama", "attention_bias": True, "mlp_bias": True, "head_dim": 6,
                   "num_key_value_heads": 4, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
        "cases": [{"name": "causal"}],
    },
    "mistral": {
        "config": {**DECODER, "model_type": "mistral"},
        "cases": [
            {"name": "window", "config": {"sliding_window": 4}},
            {"name": "window_bidirectional", "config": {"sliding_window": 3, "is_causal": False}},
            {"name": "no_window", "config": {"sliding_window": None}},
        ],
    },
    "qwen2": {
        "config": {**DECODER, "model_type": "qwen2"},
        "cases": [
            {"name": "full"},
            {"name": "window", "config": {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}},
            {"name": "bidirectional", "config": {"is_causal": False}},
        ],
    },
    "qwen3": {
        "config": {**DECODER, "model_type": "qwen3", "head_dim": 8},
        "cases": [
            {"name": "full"},
            {"name": "window", "config": {"use_sliding_window": True, "sliding_window": 4,
                                          "layer_types": ["sliding_attention", "full_attention"]}},
        ],
    },
}

# What AutoModel would not take.
MODEL_CLASSES = {"t5": transformers.T5EncoderModel}


def published_gte(weights):
    published = {}
    for name, value in weights.items():
        for ours, theirs in (("layers.", "encoder.layer."), ("self_attn.o_proj", "attention.o_proj"),
                             ("post_attention_layernorm", "attn_ln"), ("post_mlp_layernorm", "mlp_ln")):
            name = name.replace(ours, theirs)
        published["new." + name] = value
    fuse(published, "self_attn.{}_proj", "qkv", "attention.qkv_proj")
    fuse(published, "mlp.{}_proj", ("up", "gate"), "mlp.up_gate_proj")
    return published


def published_nomic_bert(weights):
    published = {}
    for name, value in weights.items():
        for ours, theirs in (("layers.", "encoder.layers."), ("embeddings.LayerNorm", "emb_ln"),
                             ("self_attn.o_proj", "attn.out_proj"), ("up_proj", "fc11"), ("gate_proj", "fc12"),
                             ("down_proj", "fc2"), ("post_attention_layernorm", "norm1"),
                             ("post_mlp_layernorm", "norm2")):
            name = name.replace(ours, theirs)
        published[name] = value
    fuse(published, "self_attn.{}_proj", "qkv", "attn.Wqkv")
    return published


def fuse(tensors, pattern, parts, fused):
    """Puts the tensors of `parts`, one below the other, in the place of those that it takes out."""
    pieces = [pattern.format(part) for part in parts]
    for name in [name for name in tensors if pieces[0] in name]:
        rows = [tensors.pop(name.replace(pieces[0], piece)) for piece in pieces]
        tensors[name.replace(pieces[0], fused)] = torch.cat(rows)


# Of families whose published files have other names: the same weights as there.
PUBLISHED = {"gte": published_gte, "nomic_bert": published_nomic_bert}
