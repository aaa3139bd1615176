#include "tokenizer/sentencepiece_file.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "io/file.h"
#include "tokenizer/model.h"
#include "tokenizer/unicode.h"

namespace stft::tokenizer {
namespace {

constexpr std::size_t kMaxPieceBytes = 1024;

// A field of a protobuf message.
struct Field {
  std::uint64_t number = 0;
  std::uint64_t integer = 0;  // of a varint or a fixed number
  std::string_view bytes;     // of a string or a message
  bool has_bytes = false;
  std::size_t position = 0;  // in the file
};

// Reads messages of the file; every failure names the byte.
class ProtobufReader {
 public:
  ProtobufReader(std::string path, std::string_view file) : path_(std::move(path)), file_(file) {}

  void read(std::string_view message, const std::function<void(const Field&)>& handle) const {
    std::string_view rest = message;
    while (!rest.empty()) {
      handle(next(rest));
    }
  }

  [[noreturn]] void fail(std::size_t position, const std::string& what) const {
    throw UserError(fmt::format("{}: not a sentencepiece model: byte {}: {}", path_, position, what));
  }

 private:
  std::size_t position_of(std::string_view rest) const { return static_cast<std::size_t>(rest.data() - file_.data()); }

  std::uint64_t varint(std::string_view& rest) const {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (rest.empty()) {
        fail(position_of(rest), "the file ends within a number");
      }
      const auto byte = static_cast<unsigned char>(rest.front());
      rest.remove_prefix(1);
      if (shift < 64) {
        value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      }
      if (byte < 0x80) {
        return value;
      }
    }
    fail(position_of(rest), "a number of more than ten bytes");
  }

  std::string_view take(std::string_view& rest, std::uint64_t count) const {
    if (count > rest.size()) {
      fail(position_of(rest), fmt::format("a field of {} bytes, but {} are left", count, rest.size()));
    }
    const std::string_view taken = rest.substr(0, count);
    rest.remove_prefix(count);
    return taken;
  }

  std::uint64_t fixed(std::string_view& rest, std::size_t size) const {
    std::uint64_t value = 0;
    const std::string_view bytes = take(rest, size);
    for (std::size_t i = size; i-- > 0;) {
      value = value << 8 | static_cast<unsigned char>(bytes[i]);
    }
    return value;
  }

  Field next(std::string_view& rest) const {
    Field field;
    field.position = position_of(rest);
    const std::uint64_t key = varint(rest);
    field.number = key >> 3;
    if (field.number == 0) {
      fail(field.position, "a field without a number");
    }
    switch (key & 7) {
      case 0:
        field.integer = varint(rest);
        break;
      case 1:
        field.integer = fixed(rest, 8);
        break;
      case 2:
        field.bytes = take(rest, varint(rest));
        field.has_bytes = true;
        break;
      case 5:
        field.integer = fixed(rest, 4);
        break;
      default:
        fail(field.position, fmt::format("a field of unknown kind {}", key & 7));
    }
    return field;
  }

  std::string path_;
  std::string_view file_;
};

class ModelReader {
 public:
  explicit ModelReader(const std::string& path) : path_(path), file_(path), reader_(path, file_.text()) {}

  SentencePieceFile read() {
    reader_.read(file_.text(), [&](const Field& field) {
      if (field.number >= 1 && field.number <= 3 && !field.has_bytes) {
        reader_.fail(field.position, fmt::format("field {} is a number instead of a message", field.number));
      }
      if (field.number == 1) {
        read_piece(field);
      } else if (field.number == 2) {
        read_trainer(field.bytes);
      } else if (field.number == 3) {
        read_normalizer(field.bytes);
      }
    });
    if (model_.pieces.empty()) {
      throw UserError(path_ + ": not a sentencepiece model: it holds no pieces");
    }
    const auto count = static_cast<std::int64_t>(model_.pieces.size());
    if (model_.unk_id < 0 || model_.unk_id >= count) {
      throw UserError(fmt::format("{}: unk_id is {}, but the pieces are 0 to {}", path_, model_.unk_id, count - 1));
    }
    return std::move(model_);
  }

 private:
  std::string text(const Field& field) const {
    if (!field.has_bytes || replace_invalid_utf8(field.bytes)) {
      reader_.fail(field.position, fmt::format("field {} is not text", field.number));
    }
    return std::string(field.bytes);
  }

  void read_piece(const Field& message) {
    SentencePieceEntry entry;
    reader_.read(message.bytes, [&](const Field& field) {
      if (field.number == 1) {
        entry.piece = text(field);
      } else if (field.number == 2) {
        entry.score = std::bit_cast<float>(static_cast<std::uint32_t>(field.integer));
      } else if (field.number == 3) {
        if (field.integer < 1 || field.integer > 6) {
          reader_.fail(field.position, fmt::format("the piece type {} is not one of 1 to 6", field.integer));
        }
        entry.type = static_cast<SentencePieceType>(field.integer);
      }
    });
    const std::size_t id = model_.pieces.size();
    if (entry.piece.empty() || entry.piece.size() > kMaxPieceBytes) {
      reader_.fail(message.position,
                   fmt::format("piece {} has {} bytes, not 1 to {}", id, entry.piece.size(), kMaxPieceBytes));
    }
    if (!std::isfinite(entry.score)) {
      reader_.fail(message.position, fmt::format("the score of piece {} ('{}') is no finite number", id, entry.piece));
    }
    const auto [other, is_new] = ids_.emplace(entry.piece, id);
    if (!is_new) {
      reader_.fail(message.position,
                   fmt::format("piece {} is '{}' as piece {} is already", id, entry.piece, other->second));
    }
    if (id > static_cast<std::size_t>(kMaxTokenId)) {
      reader_.fail(message.position, fmt::format("more than {} pieces", kMaxTokenId));
    }
    model_.pieces.push_back(std::move(entry));
  }

  void read_trainer(std::string_view message) {
    reader_.read(message, [&](const Field& field) {
      switch (field.number) {
        case 3:
          if (field.integer < 1 || field.integer > 4) {
            reader_.fail(field.position, fmt::format("the model type {} is not one of 1 to 4", field.integer));
          }
          model_.algorithm = static_cast<SentencePieceAlgorithm>(field.integer);
          break;
        case 35:
          model_.byte_fallback = field.integer != 0;
          break;
        case 40:
          model_.unk_id = static_cast<std::int32_t>(field.integer);
          break;
        case 41:
          model_.bos_id = static_cast<std::int32_t>(field.integer);
          break;
        case 42:
          model_.eos_id = static_cast<std::int32_t>(field.integer);
          break;
        case 45:
          model_.unk_piece = text(field);
          break;
        case 46:
          model_.bos_piece = text(field);
          break;
        case 47:
          model_.eos_piece = text(field);
          break;
        default:
          break;
      }
    });
  }

  void read_normalizer(std::string_view message) {
    reader_.read(message, [&](const Field& field) {
      if (field.number == 2) {
        model_.charsmap = std::string(field.bytes);
      } else if (field.number == 3) {
        model_.add_dummy_prefix = field.integer != 0;
      } else if (field.number == 4) {
        model_.remove_extra_whitespaces = field.integer != 0;
      } else if (field.number == 5) {
        model_.escape_whitespaces = field.integer != 0;
      }
    });
  }

  const std::string& path_;
  io::MappedFile file_;
  ProtobufReader reader_;
  SentencePieceFile model_;
  std::unordered_map<std::string, std::size_t> ids_;
};

}  // namespace

SentencePieceFile read_sentencepiece_file(const std::string& path) {
  return ModelReader(path).read();
}

}  // namespace stft::tokenizer
