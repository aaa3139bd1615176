// How fast 4-bit quantization is. run.py beside this file runs it next to bitsandbytes.
//
//   nf4_bench ROWS COLUMNS THREADS PASSES [LEVEL]
//
// Quantizes and de-quantizes a matrix of normal numbers in blocks of 64. Prints a JSON line for each measure,
// {"measure", "level", "seconds": of each pass}. LEVEL: scalar, avx2 or avx512; default: the best of the processor.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "quant/nf4.h"
#include "quant/nf4_double.h"

namespace {

using namespace stft::quant;

constexpr std::int64_t kBlock = 64;

struct Setting {
  std::int64_t elements = 0;
  std::int64_t threads = 1;
  int passes = 1;
  CpuLevel level = CpuLevel::kScalar;
};

CpuLevel level_of(const std::string& name) {
  for (const CpuLevel level : cpu_levels()) {
    if (name == cpu_level_name(level)) {
      return level;
    }
  }
  throw std::runtime_error("this processor has no level " + name);
}

// Calls work(first element, count) on every thread, in whole groups of double quantization.
void split(const Setting& setting, const std::function<void(std::size_t, std::size_t)>& work) {
  const std::int64_t group = kBlock * kByteBlock;
  const std::int64_t groups = (setting.elements + group - 1) / group;
  std::vector<std::thread> workers;
  for (std::int64_t i = 0; i < setting.threads; ++i) {
    const std::int64_t begin = groups * i / setting.threads * group;
    const std::int64_t end = std::min(groups * (i + 1) / setting.threads * group, setting.elements);
    workers.emplace_back([&work, begin, end] {
      if (begin < end) {
        work(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
      }
    });
  }
  for (std::thread& worker : workers) {
    worker.join();
  }
}

void measure(const Setting& setting, const std::string& name,
             const std::function<void(std::size_t, std::size_t)>& work) {
  std::printf("{\"measure\": \"%s\", \"level\": \"%s\", \"seconds\": [", name.c_str(),
              std::string(cpu_level_name(setting.level)).c_str());
  split(setting, work);  // touches the pages
  for (int i = 0; i < setting.passes; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    split(setting, work);
    std::printf("%s%.6f", i == 0 ? "" : ", ",
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::printf("]}\n");
}

template <class T>
std::vector<T> converted(const std::vector<float>& values) {
  std::vector<T> out(values.size());
  std::transform(values.begin(), values.end(), out.begin(), from_float<T>);
  return out;
}

class Bench {
 public:
  explicit Bench(const Setting& setting)
      : setting_(setting),
        packed_(static_cast<std::size_t>(packed_size(setting.elements))),
        absmax_(static_cast<std::size_t>(block_count(setting.elements, kBlock))),
        codes_(absmax_.size()),
        nested_((absmax_.size() + kByteBlock - 1) / kByteBlock) {}

  template <class T>
  void quantize(const std::vector<T>& values, const std::string& name) {
    measure(setting_, "quantize " + name, [&](std::size_t first, std::size_t count) {
      quantize_4bit<T>({}, std::span(values).subspan(first, count), part(first, count), setting_.level);
    });
  }

  template <class T>
  void dequantize(const std::string& name) {
    std::vector<T> out(static_cast<std::size_t>(setting_.elements));
    measure(setting_, "dequantize " + name, [&](std::size_t first, std::size_t count) {
      const QuantizedPart from = part(first, count);
      dequantize_4bit<T>({four_bit_table(QuantType::kNf4).values, kBlock, from.packed, from.absmax},
                         std::span(out).subspan(first, count), setting_.level);
    });
  }

  void dequantize_double() {
    AbsmaxSum sum;
    sum.add(absmax_);
    const float offset = sum.mean();
    quantize_absmax(absmax_, offset, {codes_, nested_});
    std::vector<float> out(static_cast<std::size_t>(setting_.elements));
    measure(setting_, "dequantize fp32, double", [&](std::size_t first, std::size_t count) {
      const QuantizedPart from = part(first, count);
      const std::size_t block = first / kBlock;
      std::vector<float> absmax(from.absmax.size());
      dequantize_absmax(
          {nested_map(),
           {std::span(codes_).subspan(block, absmax.size()),
            std::span(nested_).subspan(block / kByteBlock, (absmax.size() + kByteBlock - 1) / kByteBlock)},
           offset},
          absmax);
      dequantize_4bit<float>({four_bit_table(QuantType::kNf4).values, kBlock, from.packed, absmax},
                             std::span(out).subspan(first, count), setting_.level);
    });
  }

 private:
  QuantizedPart part(std::size_t first, std::size_t count) {
    return {std::span(packed_).subspan(first / 2, (count + 1) / 2),
            std::span(absmax_).subspan(first / kBlock, (count + kBlock - 1) / kBlock)};
  }

  Setting setting_;
  std::vector<std::uint8_t> packed_;
  std::vector<float> absmax_;
  std::vector<std::uint8_t> codes_;
  std::vector<float> nested_;
};

void run(const Setting& setting) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.05F);
  std::vector<float> values(static_cast<std::size_t>(setting.elements));
  std::generate(values.begin(), values.end(), [&] { return normal(random); });
  std::vector<float> copy(values.size());
  measure(setting, "copy fp32", [&](std::size_t first, std::size_t count) {
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(first), count,
                copy.begin() + static_cast<std::ptrdiff_t>(first));
  });
  Bench bench(setting);
  bench.quantize(converted<Bf16>(values), "bf16");
  bench.quantize(values, "fp32");
  bench.dequantize<float>("fp32");
  bench.dequantize<Bf16>("bf16");
  bench.dequantize_double();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5 && argc != 6) {
    std::fprintf(stderr, "usage: nf4_bench ROWS COLUMNS THREADS PASSES [LEVEL]\n");
    return 2;
  }
  try {
    run({std::stoll(argv[1]) * std::stoll(argv[2]), std::max(1LL, std::stoll(argv[3])), std::stoi(argv[4]),
         argc == 6 ? level_of(argv[5]) : best_cpu_level()});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nf4_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
