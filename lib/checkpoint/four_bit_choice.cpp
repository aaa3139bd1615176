#include "checkpoint/four_bit_choice.h"

#include <map>

namespace stft::checkpoint {
namespace {

io::Dtype dtype_of(const ParameterSource& source) {
  const io::Dtype dtype = source.stored ? source.stored->dtype : io::Dtype::kF32;
  return dtype == io::Dtype::kF64 ? io::Dtype::kF32 : dtype;
}

}  // namespace

bool can_be_four_bit(const model::Projection& projection) {
  return !projection.is_table && !projection.stays_whole && projection.weight->module == 0;
}

std::vector<FourBitChoice> choose_four_bit(const model::SentenceModel& model, const PretrainedWeights& weights) {
  std::map<const model::Parameter*, size_t> places;
  for (size_t i = 0; i < weights.sources().size(); ++i) {
    places[&model.parameters()[i]] = i;
  }
  const TensorSource& tensors = *weights.source_of(0);
  std::vector<FourBitChoice> result;
  for (const model::Projection& projection : model.projections()) {
    if (projection.weight->is_trainable || projection.is_table || projection.weight->module != 0) {
      continue;
    }
    const size_t place = places.at(projection.weight);
    const ParameterSource& source = weights.sources()[place];
    const StoredFourBit* stored = tensors.four_bit(source.key);
    if (tensors.has_four_bit() ? stored != nullptr : can_be_four_bit(projection)) {
      result.push_back({place, stored, dtype_of(source)});
    }
  }
  return result;
}

}  // namespace stft::checkpoint
