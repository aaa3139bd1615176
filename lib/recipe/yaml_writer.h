// Writes YAML in block style, one key a line, so that parse_yaml reads back exactly what was given.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stft::recipe {

// A string as a YAML scalar: plain where that is unambiguous for every YAML 1.1 and 1.2 reader, else double-quoted.
std::string yaml_string(const std::string& text);
std::string yaml_number(double value);
// "[a, b]" of scalars that are YAML already.
std::string yaml_list(const std::vector<std::string>& scalars);

class YamlWriter {
 public:
  // "key: scalar"; `scalar` is YAML already.
  void scalar(std::string_view key, const std::string& value);
  void text(std::string_view key, const std::string& value) { scalar(key, yaml_string(value)); }
  void boolean(std::string_view key, bool value) { scalar(key, value ? "true" : "false"); }
  void integer(std::string_view key, int64_t value) { scalar(key, std::to_string(value)); }
  void number(std::string_view key, double value) { scalar(key, yaml_number(value)); }

  // "key:" and a deeper level until end().
  void begin(std::string_view key);
  // "- " before the next key, whose mapping goes on until end().
  void begin_item();
  void end();

  const std::string& result() const { return out_; }

 private:
  void indent();

  std::string out_;
  int level_ = 0;
  bool starts_item_ = false;
};

}  // namespace stft::recipe
