// BERT (Devlin et al., 2018), post-layer-norm encoder with learned absolute positions; weights named as in
// transformers' BertModel. The pooler is not part of a sentence embedding and is not built.
#pragma once

#include <memory>
#include <string>

#include "model/encoder.h"

namespace stft::model {

std::unique_ptr<Encoder> build_bert(const io::Json& config, const std::string& origin, std::optional<double> dropout,
                                    EncoderParts parts);

}  // namespace stft::model
