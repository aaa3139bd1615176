#include "recipe/yaml_document.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include "base/error.h"

namespace stft::recipe {

namespace {

struct Extent {
  std::size_t values = 1;
  std::size_t depth = 0;  // of mappings and lists, itself included
};

Extent measure(const YamlNode& node) {
  Extent extent;
  for (const YamlNode& item : node.items) {
    const Extent inner = measure(item);
    extent.values += inner.values;
    extent.depth = std::max(extent.depth, inner.depth);
  }
  extent.depth += node.kind == YamlKind::kList || node.kind == YamlKind::kMapping ? 1 : 0;
  return extent;
}

// Builds the tree from the parser's events; throws UserError out of the parser at the first limit that is passed.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(Source name, Diagnostics& diagnostics) : name_(std::move(name)), diagnostics_(diagnostics) {}

  YamlNode take_root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (has_document_) {
      fail(mark, "holds more than one YAML document");
    }
    has_document_ = true;
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    place(make_node(mark, YamlKind::kNull), anchor, mark);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto named = anchors_.find(anchor);
    if (named == anchors_.end()) {
      fail(mark, "an alias stands inside the value that it names");
    }
    if (frames_.size() + named->second.extent.depth > kMaxYamlDepth) {
      fail_depth(mark);
    }
    count(named->second.extent.values, mark);
    place(named->second.node, YAML::NullAnchor, mark);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    YamlNode node = make_node(mark, YamlKind::kScalar);
    const bool is_string_tag = tag == "!" || tag == "tag:yaml.org,2002:str";
    if (!is_string_tag && tag != "?" && !tag.empty()) {
      fail(mark, "YAML tags other than !!str are not supported");
    }
    node.quoted = is_string_tag;
    node.text = value;
    place(std::move(node), anchor, mark);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    open(mark, tag, anchor, YamlKind::kList);
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    open(mark, tag, anchor, YamlKind::kMapping);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Frame {
    YamlNode node;
    YAML::anchor_t anchor;
    YAML::Mark mark;
    std::optional<YamlKey> key;        // of a mapping: read, its value not yet
    std::map<std::string, int> lines;  // of the keys read so far
    std::size_t read = 0;              // values of a list, for key paths
  };
  struct Anchored {
    YamlNode node;
    Extent extent;
  };

  Source at(const YAML::Mark& mark) const { return {name_.name, name_.line > 0 ? mark.line + 1 : 0}; }

  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& text) const {
    throw UserError(at(mark).text() + ": " + text);
  }

  [[noreturn]] void fail_depth(const YAML::Mark& mark) const {
    fail(mark, "nested more than " + std::to_string(kMaxYamlDepth) + " levels deep");
  }

  YamlNode make_node(const YAML::Mark& mark, YamlKind kind) {
    count(1, mark);
    YamlNode node;
    node.kind = kind;
    node.source = at(mark);
    return node;
  }

  void count(std::size_t values, const YAML::Mark& mark) {
    values_ += values;
    if (values_ > kMaxYamlValues) {
      fail(mark, "holds more than " + std::to_string(kMaxYamlValues) + " values (aliases count as what they name)");
    }
  }

  bool expects_key() const {
    return !frames_.empty() && frames_.back().node.kind == YamlKind::kMapping && !frames_.back().key.has_value();
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlKind kind) {
    if (frames_.size() >= kMaxYamlDepth) {
      fail_depth(mark);
    }
    if (expects_key()) {
      // The parser takes an open bracket that the line does not close for the beginning of a key.
      fail(mark, "not valid YAML: a bracket is not closed, or a key is a list or a mapping");
    }
    const bool is_plain_tag =
        tag.empty() || tag == "?" || tag == "tag:yaml.org,2002:seq" || tag == "tag:yaml.org,2002:map";
    if (!is_plain_tag) {
      fail(mark, "YAML tags other than !!str are not supported");
    }
    frames_.push_back({make_node(mark, kind), anchor, mark, std::nullopt, {}, 0});
  }

  void close() {
    Frame frame = std::move(frames_.back());
    frames_.pop_back();
    place(std::move(frame.node), frame.anchor, frame.mark);
  }

  std::string path() const {
    std::string joined;
    for (const Frame& frame : frames_) {
      joined = join_key(joined, frame.key.has_value() ? frame.key->text : std::to_string(frame.read));
    }
    return joined;
  }

  // Puts a finished value where it belongs: the root, a list, a key, or a key's value.
  void place(YamlNode node, YAML::anchor_t anchor, const YAML::Mark& mark) {
    if (anchor != YAML::NullAnchor) {
      anchors_.insert_or_assign(anchor, Anchored{node, measure(node)});
    }
    if (frames_.empty()) {
      root_ = std::move(node);
      return;
    }
    if (expects_key()) {
      if (node.kind != YamlKind::kScalar) {
        fail(mark, "a key must be text");
      }
      frames_.back().key = YamlKey{node.text, at(mark)};
      return;
    }
    Frame& frame = frames_.back();
    if (frame.node.kind == YamlKind::kMapping) {
      add_member(std::move(node));
    } else {
      frame.node.items.push_back(std::move(node));
      ++frame.read;
    }
  }

  void add_member(YamlNode value) {
    Frame& frame = frames_.back();
    const auto [first, is_new] = frame.lines.emplace(frame.key->text, frame.key->source.line);
    if (is_new) {
      frame.node.keys.push_back(*frame.key);
      frame.node.items.push_back(std::move(value));
    } else {
      const std::string where = first->second > 0 ? ", first given on line " + std::to_string(first->second) : "";
      diagnostics_.add_at(frame.key->source, path(), "duplicate key" + where);
    }
    frame.key.reset();
  }

  Source name_;
  Diagnostics& diagnostics_;
  YamlNode root_;
  std::vector<Frame> frames_;
  std::map<YAML::anchor_t, Anchored> anchors_;
  std::size_t values_ = 0;
  bool has_document_ = false;
};

}  // namespace

const YamlNode* YamlNode::find(std::string_view key) const {
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].text == key) {
      return &items[i];
    }
  }
  return nullptr;
}

YamlNode* YamlNode::find(std::string_view key) {
  return const_cast<YamlNode*>(static_cast<const YamlNode*>(this)->find(key));
}

YamlNode parse_yaml(const std::string& text, const Source& name, Diagnostics& diagnostics) {
  TreeBuilder builder(name, diagnostics);
  try {
    // yaml-cpp takes the end of the text for the end of an open quote; the marker of a document's end it does not.
    std::istringstream stream(text + (text.empty() || text.back() == '\n' ? "...\n" : "\n...\n"));
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    std::string where = name.name;
    if (name.line > 0 && !error.mark.is_null()) {
      where += ":" + std::to_string(error.mark.line + 1) + ":" + std::to_string(error.mark.column + 1);
    }
    const bool is_open_quote = error.msg == YAML::ErrorMsg::DOC_IN_SCALAR;
    throw UserError(where + ": not valid YAML: " + (is_open_quote ? "a quoted text does not end" : error.msg));
  }
  return builder.take_root();
}

YamlNode read_yaml_file(const std::string& path, Diagnostics& diagnostics) {
  const auto fail = [&path](int error_number) {
    throw UserError("cannot read recipe '" + path + "': " + std::strerror(error_number));
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) {
    fail(errno);
  }
  std::string text(kMaxYamlBytes + 1, '\0');
  errno = 0;
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) {
    fail(errno);
  }
  if (text.size() > kMaxYamlBytes) {
    throw UserError("cannot read recipe '" + path + "': larger than " + std::to_string(kMaxYamlBytes >> 20u) + " MiB");
  }
  return parse_yaml(text, Source{path, 1}, diagnostics);
}

}  // namespace stft::recipe
