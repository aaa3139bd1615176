#include "model/rope.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "base/error.h"

// Shape suffixes: T tokens, H heads, E half of a head's width.

namespace stft::model {
namespace {

using io::Json;

// The scaling's own keys, all in one object.
struct Scaling {
  FamilyConfig keys;
  RopeDefaults defaults;
  double theta = 10000.0;
  double factor = 1.0;
  int64_t original_positions = 0;
};

struct Frequencies {
  at::Tensor inverse_E;
  double attention_factor = 1.0;
};

at::Tensor exponents(int64_t head_dim) {
  return at::arange(0, head_dim, 2, at::kFloat) / static_cast<double>(head_dim);
}

at::Tensor plain_inverse_frequencies(double theta, int64_t head_dim) {
  return at::pow(theta, exponents(head_dim)).reciprocal();
}

// "YaRN" (Peng et al., 2023), section 3.2: high frequencies as they are, low ones interpolated, a ramp between them.
Frequencies yarn(const Scaling& scaling) {
  const double dim = static_cast<double>(scaling.defaults.head_dim);
  const auto correction = [&](double rotations) {
    return dim * std::log(static_cast<double>(scaling.original_positions) / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(scaling.theta));
  };
  double low = correction(scaling.keys.positive_number("beta_fast", 32));
  double high = correction(scaling.keys.positive_number("beta_slow", 1));
  if (scaling.keys.flag("truncate", true)) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  high = low == high ? high + 0.001 : high;
  const auto ramp_E = ((at::arange(scaling.defaults.head_dim / 2, at::kFloat) - low) / (high - low)).clamp(0, 1);
  const auto frequencies_E = at::pow(scaling.theta, exponents(scaling.defaults.head_dim));
  const auto kept_E = 1 - ramp_E;
  Frequencies result;
  result.inverse_E = (frequencies_E * scaling.factor).reciprocal() * (1 - kept_E) + frequencies_E.reciprocal() * kept_E;
  const auto scale = [&](double by) { return scaling.factor <= 1 ? 1.0 : 0.1 * by * std::log(scaling.factor) + 1.0; };
  const double mscale = io::optional_double(scaling.keys.json(), "mscale", scaling.keys.origin()).value_or(0);
  const double all_dim = io::optional_double(scaling.keys.json(), "mscale_all_dim", scaling.keys.origin()).value_or(0);
  const double inferred = mscale != 0 && all_dim != 0 ? scale(mscale) / scale(all_dim) : scale(1);
  result.attention_factor = scaling.keys.positive_number("attention_factor", inferred);
  return result;
}

// As Llama 3.1: short wavelengths as they are, long ones divided, a ramp between them.
Frequencies llama3(const Scaling& scaling) {
  const auto length = static_cast<double>(scaling.original_positions);
  const double low = scaling.keys.positive_number("low_freq_factor", 1);
  const double high = scaling.keys.positive_number("high_freq_factor", 4);
  if (!(high > low)) {
    scaling.keys.refuse("high_freq_factor", "expected more than low_freq_factor");
  }
  const auto inverse_E = plain_inverse_frequencies(scaling.theta, scaling.defaults.head_dim);
  const auto wavelength_E = 2 * std::numbers::pi / inverse_E;
  const auto divided_E = at::where(wavelength_E > length / low, inverse_E / scaling.factor, inverse_E);
  const auto smooth_E = (length / wavelength_E - low) / (high - low);
  const auto smoothed_E = (1 - smooth_E) * divided_E / scaling.factor + smooth_E * divided_E;
  const auto is_between_E = (wavelength_E >= length / high).logical_and(wavelength_E <= length / low);
  return {at::where(is_between_E, smoothed_E, divided_E)};
}

at::Tensor read_factors(const Scaling& scaling, const std::string& key) {
  const Json& json = scaling.keys.json();
  const auto expected = static_cast<size_t>(scaling.defaults.head_dim / 2);
  std::vector<float> factors;
  if (json.contains(key) && json.at(key).is_array() && json.at(key).size() == expected) {
    for (const Json& factor : json.at(key)) {
      if (factor.is_number() && factor.get<double>() > 0) {
        factors.push_back(factor.get<float>());
      }
    }
  }
  if (factors.size() != expected) {
    scaling.keys.refuse(key, fmt::format("expected a list of {} positive numbers", expected));
  }
  return at::tensor(factors);
}

double longrope_attention_factor(const Scaling& scaling) {
  const double inferred =
      scaling.factor <= 1
          ? 1.0
          : std::sqrt(1 + std::log(scaling.factor) / std::log(static_cast<double>(scaling.original_positions)));
  return scaling.keys.positive_number("attention_factor", inferred);
}

// The forward rotation and, with the sine negated, its backward.
at::Tensor rotated(const at::Tensor& x_TD, const at::Tensor& cos_T1E, const at::Tensor& sin_T1E, double sign) {
  const int64_t half = cos_T1E.size(-1);
  const auto x_THD = x_TD.to(at::kFloat).view({x_TD.size(0), -1, 2 * half});
  const auto first = x_THD.narrow(-1, 0, half);
  const auto second = x_THD.narrow(-1, half, half);
  auto out_THD = at::empty(x_THD.sizes(), x_THD.options());
  auto out_first = out_THD.narrow(-1, 0, half);
  auto out_second = out_THD.narrow(-1, half, half);
  at::mul_out(out_first, first, cos_T1E);
  out_first.addcmul_(second, sin_T1E, -sign);
  at::mul_out(out_second, second, cos_T1E);
  out_second.addcmul_(first, sin_T1E, sign);
  return out_THD.view(x_TD.sizes()).to(x_TD.scalar_type());
}

struct Rotation : torch::autograd::Function<Rotation> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x_TD,
                            const at::Tensor& cos_T1E, const at::Tensor& sin_T1E) {
    context->save_for_backward({cos_T1E, sin_T1E});
    return rotated(x_TD, cos_T1E, sin_T1E, 1);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    return {rotated(gradients.front().contiguous(), saved[0], saved[1], -1), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

Rope Rope::read(const FamilyConfig& config, const RopeDefaults& defaults) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto found = config.json().find(key);
    if (found == config.json().end() || found->is_null() || (found->is_object() && found->empty())) {
      continue;
    }
    if (!found->is_object()) {
      config.refuse(key, "expected an object, found " + io::json_type_name(*found));
    }
    return from_parameters(config, *found, defaults);
  }
  return from_parameters(config, Json::object(), defaults);
}

Rope Rope::read_of_layer_type(const FamilyConfig& config, const LayerTypeRope& kind, const RopeDefaults& defaults) {
  const auto object_at = [](const Json& json, const std::string& key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_object() ? *found : Json::object();
  };
  Json parameters = object_at(object_at(config.json(), "rope_parameters"), kind.layer_type);
  if (kind.takes_rope_scaling) {
    parameters.update(object_at(config.json(), "rope_scaling"));
  }
  if (!parameters.contains("rope_theta")) {
    parameters["rope_theta"] = config.positive_number(kind.theta_key, kind.theta);
  }
  return from_parameters(config, parameters, defaults);
}

Rope Rope::from_parameters(const FamilyConfig& config, const Json& parameters, const RopeDefaults& defaults) {
  if (defaults.head_dim % 2 != 0) {
    throw UserError(
        fmt::format("{}: rotary positions need an even head width, found {}", config.origin(), defaults.head_dim));
  }
  Scaling scaling{FamilyConfig(parameters, config.origin() + ": rope_parameters"), defaults};
  const FamilyConfig& keys = scaling.keys;
  const std::string type = keys.text("rope_type", keys.text("type", "default"));
  scaling.theta = keys.positive_number("rope_theta", config.positive_number("rope_theta", defaults.theta));
  if (keys.positive_number("partial_rotary_factor", config.positive_number("partial_rotary_factor", 1)) != 1) {
    throw UserError(config.origin() + ": partial_rotary_factor other than 1 is not available yet");
  }
  scaling.original_positions = config.positive(
      "original_max_position_embeddings", keys.positive("original_max_position_embeddings", defaults.max_positions));
  const double ratio = static_cast<double>(defaults.max_positions) / static_cast<double>(scaling.original_positions);
  scaling.factor = keys.positive_number("factor", ratio);
  Rope rope;
  // No text is longer than max_position_embeddings, so that dynamic never scales.
  rope.inverse_frequencies_E_ = plain_inverse_frequencies(scaling.theta, defaults.head_dim);
  if (type == "linear") {
    rope.inverse_frequencies_E_ = rope.inverse_frequencies_E_ / keys.positive_number("factor", 1);
  } else if (type == "yarn" || type == "llama3") {
    const Frequencies frequencies = type == "yarn" ? yarn(scaling) : llama3(scaling);
    rope.inverse_frequencies_E_ = frequencies.inverse_E;
    rope.attention_factor_ = frequencies.attention_factor;
  } else if (type == "longrope") {
    const auto powers_E = at::pow(scaling.theta, exponents(defaults.head_dim));
    rope.inverse_frequencies_E_ = (read_factors(scaling, "short_factor") * powers_E).reciprocal();
    rope.long_inverse_frequencies_E_ = (read_factors(scaling, "long_factor") * powers_E).reciprocal();
    rope.long_from_ = scaling.original_positions;
    rope.attention_factor_ = longrope_attention_factor(scaling);
  } else if (type != "default" && type != "dynamic") {
    throw UserError(
        fmt::format("{}: rope_type '{}' is not available yet (default, linear, dynamic, yarn, longrope, "
                    "llama3 are)",
                    config.origin(), type));
  }
  return rope;
}

RopeAngles Rope::angles(const TokenBatch& batch) const {
  const int64_t longest = batch.buckets.back().length;
  const auto table = [&](const at::Tensor& inverse_E) {
    return at::arange(longest, at::kFloat).unsqueeze(1) * inverse_E;
  };
  auto angles_PE = table(inverse_frequencies_E_);
  auto row_T = batch.position_T;
  if (long_inverse_frequencies_E_.defined() && longest > long_from_) {
    angles_PE = at::cat({angles_PE, table(long_inverse_frequencies_E_)});
    row_T = row_T.clone();
    int64_t first = 0;
    for (const int64_t length : batch.lengths) {
      if (length > long_from_) {
        row_T.narrow(0, first, length).add_(longest);
      }
      first += batch.layout == Layout::kPadded ? longest : length;
    }
  }
  const auto rows = [&](const at::Tensor& values_PE) {
    return (values_PE * attention_factor_).index_select(0, row_T).unsqueeze(1);
  };
  return {rows(angles_PE.cos()), rows(angles_PE.sin())};
}

at::Tensor rotate(const at::Tensor& x_TD, const RopeAngles& angles) {
  return Rotation::apply(x_TD, angles.cos_T1E, angles.sin_T1E);
}

}  // namespace stft::model
